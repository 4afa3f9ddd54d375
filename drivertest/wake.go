package drivertest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencelock/fencelock/driver"
)

var wakeLaws = []law{
	{"WakeAll", fair, prompted(func(w *world, key string) string {
		writer := w.a.holds(w.claim(key))
		return w.grants(func() { writer.leaves() }, w.readersWait(key)...)
	}), "a writer leaves and lets in all readers: a reader that is not woken sleeps beside a lock of its own"},
	{"WakeAllWhenAWaiterGivesUp", fair, prompted(func(w *world, key string) string {
		w.a.holds(w.reader(key))
		writer := w.b.waits(w.claim(key))
		return w.grants(func() { writer.leaves() }, w.readersWait(key)...)
	}), "a writer that waits and gives up frees the readers behind it, though no holder has left"},
	{"WakeAllAfterBreak", fair, prompted(func(w *world, key string) string {
		writer := w.a.holds(w.claim(key))
		return w.grants(func() { writer.brokenBy(w.b, "move on") }, w.readersWait(key)...)
	}), "a break removes a claim like a Leave, and wakes like one"},
	{"WakeAllAfterExpiry", fair, promptedInTime(func(r *round, key string) string {
		return r.grantsAfter(r.view().holds(r.short(key)))
	}), "nobody announces a crash: those in line must look when the lease can have ended, and wake each other"},
	{"WakeAllAfterAWaitersExpiry", fair, promptedInTime(func(r *round, key string) string {
		r.a.holds(r.reader(key))
		return r.grantsAfter(r.view().waits(r.short(key)))
	}), "a writer that crashed in line stands between readers that hold and readers that could"},
	{"WakeAllWhoFit", all(fair, semaphore), prompted(func(w *world, key string) string {
		three := w.a.holds(w.slots(key, 3, 3))
		var ws []*inLine
		for i := range 3 {
			ws = append(ws, w.views()[i%2].waits(w.slots(key, 1, 3)))
		}
		fourth := w.a.waits(w.slots(key, 1, 3))
		late := w.grants(func() { three.leaves() }, ws...)
		fourth.stillWaits()
		return late
	}), "one that leaves three slots lets in three that want one each, and not a fourth"},
	{"GrantBeforeAwaitIsNotLost", fair, prompted(func(w *world, key string) string {
		holder := w.a.holds(w.claim(key))
		next := w.b.waits(w.claim(key))
		holder.leaves()
		start := time.Now()
		next.granted()
		return late(time.Since(start))
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

// errSpin says that Await does not wait. Without a limit on calls a bubble would
// hang on it, for its clock stands still while somebody is busy.
var errSpin = errors.New("it returned again and again while nothing had changed")

// settle is what Awaits are given to be under way before something happens.
const settle = 20 * time.Millisecond

// readersWait joins four readers to a line in which they must wait.
func (w *world) readersWait(key string) (xs []*inLine) {
	for i := range 4 {
		xs = append(xs, w.views()[i%2].waits(w.reader(key)))
	}
	return xs
}

// grants has everybody wait at once, does what lets them in, and says who was
// late where grants are pushed.
func (w *world) grants(trigger func(), xs ...*inLine) string {
	var did time.Time
	w.must("Await of a claim that should be granted", w.awaiting(func() { trigger(); did = time.Now() }, xs...))
	if !w.info.Push {
		return ""
	}
	return late(time.Since(did))
}

// grantsAfter crashes a writer, and has readers on both views wait for the end of its lease.
func (r *round) grantsAfter(writer *inLine) string {
	writer.crashes()
	r1 := r.a.waitsBefore(writer.ends(), r.reader(writer.Key))
	r2 := r.b.waitsBefore(writer.ends(), r.reader(writer.Key))
	r.must("Await of a claim that should be granted", r.awaiting(func() {}, r1, r2))
	if r.info.Lease != driver.PerClaim {
		return ""
	}
	return late(time.Since(writer.answered.Add(writer.TTL)))
}

// late describes a grant that somebody learned of too late.
func late(took time.Duration) string {
	if took <= prompt {
		return ""
	}
	return fmt.Sprintf("the last waiter learned of its grant after %v", took)
}

// awaiting awaits every claim in a goroutine of its own until it is granted, does f meanwhile,
// and returns when the last of them has an answer.
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

// prompted plays a schedule until it is prompt once. A message may be lost, and a
// machine may be slow, but neither happens every time.
func prompted(schedule func(w *world, key string) (late string)) func(w *world, _ string) {
	return func(w *world, _ string) {
		var late string
		for range maxRounds {
			if late = schedule(w, w.key()); late == "" {
				return
			}
		}
		w.t.Errorf("in each of %d rounds: %s", maxRounds, late)
	}
}

// promptedInTime is prompted for a schedule that depends on time.
func promptedInTime(schedule func(r *round, key string) (late string)) func(w *world, _ string) {
	return prompted(func(w *world, _ string) (late string) {
		timed(func(r *round, key string) { late = schedule(r, key) })(w, "")
		return late
	})
}
