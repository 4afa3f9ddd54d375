package redislock

import (
	"time"

	"github.com/fencelock/fencelock/driver"
)

// alarmAfter is how long after its first grant a Backend subscribes for alarms: a process that locks once and ends
// needs no connection for them.
const alarmAfter = 100 * time.Millisecond

// Alarm calls f, on the goroutine of the subscription, for each claim of this Backend that is broken. The subscription
// begins a tenth of a second after the first grant. Of a claim that is broken before, or while the subscription is
// interrupted, the next Renew returns the same.
func (b *Backend) Alarm(f func(id string, gone driver.GoneError)) (stop func()) {
	return b.alarms.Subscribe(f)
}

// listen subscribes soon, if a caller wants alarms.
func (b *Backend) listen() {
	if b.alarms.Len() > 0 && b.listens.CompareAndSwap(false, true) {
		time.AfterFunc(alarmAfter, b.subscriber.open)
	}
}

// broken notifies the Await of the claim, and all alarms.
func (b *Backend) broken(id string, gone driver.GoneError) {
	if gone.Left == 0 {
		b.waiters.notify(id, func(w *waiter) { w.gone = &gone })
	}
	b.alarms.Notify(id, gone)
}
