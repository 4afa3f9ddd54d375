package redislock

import (
	"context"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
)

const (
	// alarmAfter is how long a claim has to be held before a subscription is made for
	// its alarm.
	alarmAfter = 100 * time.Millisecond
	// maxUnseen bounds the claims that are read once the subscription is there.
	maxUnseen = 1000
)

// alarms tells those who called Alarm of claims that are broken. A claim that was
// granted while there was no subscription may be broken unseen, so it is read once the
// subscription is there. If it is broken just then it may be told twice.
type alarms struct {
	b     *Backend
	funcs driver.Alarms

	mu     sync.Mutex
	timer  *time.Timer       // runs out when a subscription may be worth it
	unseen map[string]string // ID → key of claims that may have been broken unseen
}

// Alarm calls f, on the goroutine of the subscription, for each claim of this
// Backend that somebody breaks. The subscription is made once a claim has been held
// for a tenth of a second; claims that were granted while there was none are looked
// at once when it is there. A message that is lost later is not made up for.
func (b *Backend) Alarm(f func(id string, gone driver.ErrGone)) (stop func()) {
	a := &b.subscriber.alarms
	unsubscribe := a.funcs.Subscribe(f)
	return func() {
		unsubscribe()
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.funcs.Len() == 0 {
			a.unseen = nil
		}
	}
}

// granted is told of each claim that is granted without a subscription.
func (a *alarms) granted(id, key string) {
	if a.funcs.Len() == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.unseen) >= maxUnseen {
		return
	}
	if a.timer == nil {
		a.timer = time.AfterFunc(alarmAfter, a.subscribe)
	}
	if a.unseen == nil {
		a.unseen = make(map[string]string)
	}
	a.unseen[id] = key
}

// subscribe makes the subscription if a claim is held: a lock that is held for a moment
// is not worth a connection.
func (a *alarms) subscribe() {
	a.mu.Lock()
	held := len(a.unseen) > 0
	if !held {
		a.timer = nil
	}
	a.mu.Unlock()
	if held {
		a.b.subscriber.open()
	}
}

// left is told of each claim that leaves.
func (a *alarms) left(id string) {
	if a.funcs.Len() == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.unseen, id)
}

// takeUnseen returns the claims to read, now that there is a subscription.
func (a *alarms) takeUnseen() map[string]string {
	a.mu.Lock()
	defer a.mu.Unlock()
	unseen := a.unseen
	a.unseen = nil
	return unseen
}

// readUnseen reads the claims that may have been broken before there was a
// subscription. Renew hears of those that cannot be read now.
func (a *alarms) readUnseen(ctx context.Context, unseen map[string]string) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for id, key := range unseen {
		got := a.b.transport.Do(ctx, a.b.command(awaitScript, key, prefixed(id)))
		if got.Err != nil {
			return
		}
		if s, ok := got.Answer.(string); ok && len(s) > 1 && s[:2] == "xb" {
			a.broken(id, parseGone(s))
		}
	}
}

// broken tells whoever waits for the claim, and all alarms.
func (a *alarms) broken(id string, gone driver.ErrGone) {
	a.b.waiters.notify(id, func(w *waiter) { w.gone = &gone })
	a.left(id)
	a.funcs.Notify(id, gone)
}
