package redislock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/driverutil"
)

const (
	// alarmAfter is how long a claim has to be held before a subscription is made for
	// its alarm: a lock that is held for a moment is not worth a connection.
	alarmAfter = 100 * time.Millisecond
	// maxUnseen bounds the claims that are read once the subscription is there.
	maxUnseen = 1000
)

// alarms notifies those who called Alarm of claims that are broken. A claim that was
// granted while there was no subscription may be broken unseen, so it is read once the
// subscription is there. If it is broken just then, its alarm may be raised twice.
type alarms struct {
	driverutil.Alarms
	b *Backend

	mu     sync.Mutex
	unseen map[string]string // ID → key; nil if there is none, and no timer runs
}

// Alarm calls f, on the goroutine of the subscription, for each claim of this
// Backend that somebody breaks. The subscription is made once a claim has been held
// for a tenth of a second; claims that were granted while there was none are looked
// at once when it is there. A message that is lost later is not made up for.
func (b *Backend) Alarm(f func(id string, gone driver.GoneError)) (stop func()) {
	return b.subscriber.alarms.Subscribe(f)
}

// granted notes a claim that is granted without a subscription.
func (a *alarms) granted(id, key string) {
	if a.Len() == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.unseen == nil {
		a.unseen = make(map[string]string)
		time.AfterFunc(alarmAfter, a.subscribe)
	}
	if len(a.unseen) < maxUnseen {
		a.unseen[id] = key
	}
}

// subscribe makes the subscription if a claim is held.
func (a *alarms) subscribe() {
	a.mu.Lock()
	held := len(a.unseen) > 0
	if !held {
		a.unseen = nil
	}
	a.mu.Unlock()
	if held {
		a.b.subscriber.open()
	}
}

// left notes a claim that leaves.
func (a *alarms) left(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.unseen, id)
}

// readUnseen reads the claims that may have been broken before there was a
// subscription. Renew hears of those that cannot be read now.
func (a *alarms) readUnseen(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	a.mu.Lock()
	unseen := a.unseen
	a.unseen = nil
	a.mu.Unlock()
	for id, key := range unseen {
		_, err := a.b.read(ctx, driver.Ticket{Claim: driver.Claim{Key: key, ID: id}})
		var gone driver.GoneError
		switch {
		case errors.As(err, &gone) && gone.Broken:
			a.broken(id, gone)
		case err != nil && !driver.Gone(err):
			return
		}
	}
}

// broken notifies the Await of the claim, and all alarms.
func (a *alarms) broken(id string, gone driver.GoneError) {
	a.b.waiters.notify(id, func(w *waiter) { w.gone = &gone })
	a.left(id)
	a.Notify(id, gone)
}
