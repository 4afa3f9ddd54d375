package redislock

import (
	"context"
	"maps"
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
// granted while there was no subscription may be broken unseen: it is read once the
// subscription is there. Its message may come too, in either order. Each break is told
// once.
type alarms struct {
	b     *Backend
	funcs driver.Alarms

	mu      sync.Mutex
	closed  bool
	timer   *time.Timer       // runs out when a subscription may be worth it
	unseen  map[string]string // ID → key of claims that may have been broken unseen
	reading map[string]string // those of them that are being read
	told    map[string]bool   // IDs that were told from a reading; their message may follow
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
			a.unseen, a.told = nil, nil
		}
	}
}

// granted is told of each claim that is granted without a subscription.
func (a *alarms) granted(id, key string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed || len(a.unseen) >= maxUnseen {
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
	if len(a.unseen) == 0 || len(a.reading) > 0 {
		return nil
	}
	a.reading, a.unseen = a.unseen, nil
	return maps.Clone(a.reading)
}

// readUnseen reads the claims that may have been broken before there was a
// subscription. Renew hears of those that cannot be read now.
func (a *alarms) readUnseen(ctx context.Context, unseen map[string]string) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	defer func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.reading = nil
	}()
	for id, key := range unseen {
		got := a.b.transport.Do(ctx, a.b.command(awaitScript, key, prefixed(id)))
		if got.Err != nil {
			return
		}
		if s, ok := got.Answer.(string); ok && len(s) > 1 && s[:2] == "xb" {
			a.broken(id, parseGone(s), true)
		}
	}
}

// broken tells whoever waits for the claim, and all alarms. read says that it was read,
// not heard.
func (a *alarms) broken(id string, gone driver.ErrGone, read bool) {
	a.b.waiters.notify(id, func(w *waiter) { w.gone = &gone })
	if a.isFirst(id, read) {
		a.funcs.Notify(id, gone)
	}
}

// isFirst reports whether a break was not told yet.
func (a *alarms) isFirst(id string, read bool) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, awaited := a.reading[id]
	told := read && !awaited || a.told[id]
	delete(a.unseen, id)
	delete(a.reading, id)
	delete(a.told, id)
	if read && !told {
		if a.told == nil || len(a.told) >= maxUnseen {
			a.told = make(map[string]bool)
		}
		a.told[id] = true
	}
	return !told
}

// close ends the timer.
func (a *alarms) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	if a.timer != nil {
		a.timer.Stop()
	}
}
