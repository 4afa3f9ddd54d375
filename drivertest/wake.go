package drivertest

import (
	"context"
	"errors"
	"time"
)

var wakeLaws = []law{
	{"WakeAll", fair, timed(func(w *world, key string) {
		writer := w.a.holds(w.claim(key))
		w.grants(func() { writer.leaves() }, w.readersWait(key)...)
	}), "a writer leaves and lets in all readers: a reader that is not woken sleeps beside a lock of its own"},
	{"WakeAllWhenAWaiterGivesUp", fair, timed(func(w *world, _ string) {
		for n := range 4 {
			key := w.key()
			w.line(1+2*n, func(v *view) *inLine { return v.holds(w.reader(key)) })
			writers := w.line(1+n, func(v *view) *inLine { return v.waits(w.claim(key)) })
			readers := w.readersWait(key)
			for _, writer := range writers[:n] {
				writer.leaves()
			}
			w.grants(func() { writers[n].leaves() }, readers...)
		}
	}), "a writer that waits and gives up frees the readers behind it, though no holder has left"},
	{"WakeAllAfterBreak", fair, timed(func(w *world, key string) {
		writer := w.a.holds(w.claim(key))
		w.grants(func() { writer.brokenBy(w.b, "move on") }, w.readersWait(key)...)
	}), "a break removes a claim like a Leave, and wakes like one"},
	{"WakeAllAfterExpiry", fair, timed(func(w *world, key string) {
		w.grantsAfter(w.view().holds(w.short(key)))
	}), "nobody announces a crash: those in line must look when the lease can have ended, and wake each other"},
	{"WakeAllAfterAWaitersExpiry", fair, timed(func(w *world, key string) {
		w.a.holds(w.reader(key))
		w.grantsAfter(w.view().waits(w.short(key)))
	}), "a writer that crashed in line stands between readers that hold and readers that could"},
	{"WakeAllWhoFit", fair, timed(func(w *world, key string) {
		three := w.a.holds(w.slots(key, 3, 3))
		ws := w.line(3, func(v *view) *inLine { return v.waits(w.slots(key, 1, 3)) })
		fourth := w.a.waits(w.slots(key, 1, 3))
		w.grants(func() { three.leaves() }, ws...)
		fourth.stillWaits()
	}), "one that leaves three slots lets in three that want one each, and not a fourth"},
	{"GrantBeforeAwaitIsNotLost", fair, timed(func(w *world, key string) {
		holder := w.a.holds(w.claim(key))
		next := w.b.waits(w.claim(key))
		holder.leaves()
		start := time.Now()
		next.granted()
		w.promptly("the grant", start)
	}), "the holder may leave between a waiter's Enter and its Await: nobody heard the push, so Await must look"},
	{"AwaitOfAHolderReturns", nil, func(w *world, key string) {
		t := w.a.holds(w.claim(key))
		w.soon("Await of a granted claim", func() { t.granted() })
	}, "who asks about a claim that is granted already is told so"},
	{"AwaitReturnsAfterAboutASecond", fair, func(w *world, key string) {
		w.a.holds(w.claim(key))
		t := w.b.waits(w.claim(key))
		start, calls := time.Now(), 0
		for ; time.Since(start) < time.Second && calls <= callsASecond; calls++ {
			w.soon("Await while nothing changed", func() {
				now, err := w.b.Await(w.ctx, t.Ticket)
				w.must("Await", err)
				w.sound(t.Claim, now)
				w.wrongIf(now.Granted, "Await granted a claim while its holder is in line")
			})
		}
		w.wrongIf(calls > callsASecond, "Await returned %d times in %v while nothing changed", calls, time.Since(start))
	}, "the core checks its clock between Awaits: an endless one hides a lost lease, an instant one is a busy loop"},
	{"AwaitLearnsOfABreak", fair, func(w *world, key string) {
		w.a.holds(w.claim(key))
		t := w.b.waits(w.claim(key))
		w.broken("Await of a broken claim", "go home", w.awaiting(func() { t.brokenBy(w.a, "go home") }, t))
	}, "a waiter that an operator ended must not wait on"},
	{"AwaitLearnsOfALeave", fair, func(w *world, key string) {
		w.a.holds(w.claim(key))
		t := w.b.waits(w.claim(key))
		w.gone("Await of a claim that left", w.awaiting(func() { t.leaves() }, t))
	}, "a waiter is cancelled from another goroutine: its Await has to end"},
}

// errSpin says that Await does not wait. A bubble's clock stands still meanwhile.
var errSpin = errors.New("it returned again and again while nothing had changed")

// settle is what Awaits are given to be under way before something happens.
const settle = 20 * time.Millisecond

// readersWait joins four readers to a line in which they must wait.
func (w *world) readersWait(key string) []*inLine {
	return w.line(4, func(v *view) *inLine { return v.waits(w.reader(key)) })
}

// grants has everybody wait at once, and does what lets them in: at once, unless they poll seldom.
func (w *world) grants(trigger func(), xs ...*inLine) {
	var did time.Time
	w.must("Await of a claim that should be granted", w.awaiting(func() { trigger(); did = time.Now() }, xs...))
	if !w.conf.polls {
		w.promptly("the last grant", did)
	}
}

// grantsAfter crashes a writer, and has readers on both views wait for the end of its lease.
func (w *world) grantsAfter(writer *inLine) {
	writer.crashes()
	r1 := w.a.waitsBefore(writer.ends(), w.reader(writer.Key))
	r2 := w.b.waitsBefore(writer.ends(), w.reader(writer.Key))
	w.must("Await of a claim that should be granted", w.awaiting(func() {}, r1, r2))
	if !w.info.SharedLease {
		later := max(0, w.conf.lag-time.Second) // of a clock that counts seconds
		w.promptly("the last grant", writer.answered.Add(writer.TTL+later))
	}
}

// awaiting awaits the grant of every claim, does f meanwhile, and joins the errors.
func (w *world) awaiting(f func(), xs ...*inLine) error {
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	answers := make(chan error, len(xs))
	for _, x := range xs {
		go func() {
			_, err := x.awaitGrant(ctx)
			answers <- err
		}()
	}
	w.until(time.Now().Add(settle))
	f()
	var err error
	for range xs {
		err = errors.Join(err, <-answers)
	}
	return err
}
