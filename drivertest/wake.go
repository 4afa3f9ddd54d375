package drivertest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencelock/fencelock/driver"
)

var wakeLaws = []law{
	{
		name: "WakeAll",
		when: fair,
		why: "a writer leaves and two readers are granted: if only the first is told, the second sleeps beside " +
			"a lock that is its own",
		check: func(w *world) {
			w.prompted(func() string {
				key := w.key()
				writer := w.hold(w.a, w.claim(key))
				r1, r2 := w.wait(w.a, w.reader(key)), w.wait(w.b, w.reader(key))
				r3, r4 := w.wait(w.a, w.reader(key)), w.wait(w.b, w.reader(key))
				return w.grants(func() { w.leave(w.a, writer, driver.Exit{}) },
					waiter{w.a, r1}, waiter{w.b, r2}, waiter{w.a, r3}, waiter{w.b, r4})
			})
		},
	},
	{
		name: "WakeAllWhenAWaiterGivesUp",
		when: fair,
		why:  "a writer that waits and gives up frees the readers behind it, though no holder has left",
		check: func(w *world) {
			w.prompted(func() string {
				key := w.key()
				w.hold(w.a, w.reader(key))
				writer := w.wait(w.b, w.claim(key))
				r1, r2 := w.wait(w.a, w.reader(key)), w.wait(w.b, w.reader(key))
				return w.grants(func() { w.leave(w.b, writer, driver.Exit{}) }, waiter{w.a, r1}, waiter{w.b, r2})
			})
		},
	},
	{
		name: "WakeAllAfterBreak",
		when: fair,
		why:  "a break removes a claim like a Leave, and wakes like one",
		check: func(w *world) {
			w.prompted(func() string {
				key := w.key()
				writer := w.hold(w.a, w.claim(key))
				r1, r2 := w.wait(w.a, w.reader(key)), w.wait(w.b, w.reader(key))
				return w.grants(func() {
					if err := w.b.Break(w.ctx, key, writer.Token, "move on"); err != nil {
						w.t.Fatalf("Break: %v", err)
					}
				}, waiter{w.a, r1}, waiter{w.b, r2})
			})
		},
	},
	{
		name: "WakeAllAfterExpiry",
		when: fair,
		why: "nobody calls when a holder has crashed: those in line must look when its lease can have ended, " +
			"and whoever purges it wakes the others",
		check: func(w *world) {
			w.prompted(func() (late string) {
				w.timed(func(r *round) {
					key := r.key()
					view := r.open()
					var writer driver.Ticket
					i := clock(func() { writer = r.hold(view, r.short(key)) })
					r.crash(view)
					end := i.sent.Add(writer.Left)
					r1 := r.waitBefore(end, r.a, r.reader(key))
					r2 := r.waitBefore(end, r.b, r.reader(key))
					late = r.grantsAfter(i.answered.Add(writer.TTL), waiter{r.a, r1}, waiter{r.b, r2})
				})
				return late
			})
		},
	},
	{
		name: "WakeAllAfterAWaitersExpiry",
		when: fair,
		why:  "a writer that crashed in line stands between readers that hold and readers that could",
		check: func(w *world) {
			w.prompted(func() (late string) {
				w.timed(func(r *round) {
					key := r.key()
					r.hold(r.a, r.reader(key))
					view := r.open()
					var writer driver.Ticket
					i := clock(func() { writer = r.wait(view, r.short(key)) })
					r.crash(view)
					end := i.sent.Add(writer.Left)
					r1 := r.waitBefore(end, r.a, r.reader(key))
					r2 := r.waitBefore(end, r.b, r.reader(key))
					late = r.grantsAfter(i.answered.Add(writer.TTL), waiter{r.a, r1}, waiter{r.b, r2})
				})
				return late
			})
		},
	},
	{
		name: "WakeAllWhoFit",
		when: both(fair, semaphore),
		why:  "one that leaves three slots lets in three that want one each, and not a fourth",
		check: func(w *world) {
			w.prompted(func() string {
				key := w.key()
				three := w.hold(w.a, w.slots(key, 3, 3))
				var ws []waiter
				for i := range 3 {
					b := []driver.Backend{w.a, w.b}[i%2]
					ws = append(ws, waiter{b, w.wait(b, w.slots(key, 1, 3))})
				}
				fourth := w.wait(w.a, w.slots(key, 1, 3))
				late := w.grants(func() { w.leave(w.a, three, driver.Exit{}) }, ws...)
				w.stillWaits(w.b, fourth)
				return late
			})
		},
	},
	{
		name: "GrantBeforeAwaitIsNotLost",
		when: fair,
		why: "the holder may leave between a waiter's Enter and its Await: the push came when nobody listened, " +
			"so Await must look",
		check: func(w *world) {
			w.prompted(func() string {
				key := w.key()
				holder := w.hold(w.a, w.claim(key))
				next := w.wait(w.b, w.claim(key))
				w.leave(w.a, holder, driver.Exit{})
				i := clock(func() { w.granted(w.b, next) })
				if took := i.answered.Sub(i.sent); took > prompt {
					return fmt.Sprintf("Await of a claim that was granted before took %v", took)
				}
				return ""
			})
		},
	},
	{
		name: "AwaitOfAHolderReturns",
		why:  "who asks about a claim that is granted already is told so",
		check: func(w *world) {
			t := w.hold(w.a, w.claim(w.key()))
			i := clock(func() { w.granted(w.a, t) })
			if took := i.answered.Sub(i.sent); took > aboutASecond {
				w.t.Errorf("Await of a granted claim took %v", took)
			}
		},
	},
	{
		name: "AwaitReturnsAfterAboutASecond",
		when: fair,
		why: "the core looks at its own clock between two calls of Await: one that does not return hides a " +
			"lost lease, and one that returns at once is a busy loop",
		check: func(w *world) {
			key := w.key()
			w.hold(w.a, w.claim(key))
			t := w.wait(w.b, w.claim(key))
			start, calls := time.Now(), 0
			for ; time.Since(start) < time.Second && calls <= callsASecond; calls++ {
				var now driver.Ticket
				var err error
				i := clock(func() { now, err = w.b.Await(w.ctx, t) })
				if err != nil {
					w.t.Fatalf("Await: %v", err)
				}
				w.sound(t.Claim, now)
				if now.Granted {
					w.t.Errorf("Await granted a claim while its holder is in line")
				}
				if took := i.answered.Sub(i.sent); took > aboutASecond {
					w.t.Errorf("Await took %v while nothing changed; want about a second", took)
				}
			}
			if calls > callsASecond {
				w.t.Errorf("Await returned %d times in %v while nothing changed", calls, time.Since(start))
			}
		},
	},
	{
		name: "AwaitLearnsOfABreak",
		when: fair,
		why:  "a waiter that an operator ended must not wait on",
		check: func(w *world) {
			key := w.key()
			w.hold(w.a, w.claim(key))
			t := w.wait(w.b, w.claim(key))
			err := w.awaitGone(w.b, t, func() {
				if err := w.a.Break(w.ctx, key, t.Token, "go home"); err != nil {
					w.t.Fatalf("Break: %v", err)
				}
			})
			if g := w.gone("Await of a broken claim", err); !g.Broken || g.Reason != "go home" {
				w.t.Errorf("Await of a broken claim answered %+v; want the reason", g)
			}
		},
	},
	{
		name: "AwaitLearnsOfALeave",
		when: fair,
		why:  "a waiter is cancelled from another goroutine: its Await has to end",
		check: func(w *world) {
			key := w.key()
			w.hold(w.a, w.claim(key))
			t := w.wait(w.b, w.claim(key))
			err := w.awaitGone(w.b, t, func() { w.leave(w.b, t, driver.Exit{}) })
			w.gone("Await of a claim that left", err)
		},
	},
}

// waiter is a claim in line and the view that brought it there.
type waiter struct {
	view   driver.Backend
	ticket driver.Ticket
}

// errSpin says that Await does not wait. Without a limit on calls a bubble would
// hang on it, for its clock stands still while somebody is busy.
var errSpin = errors.New("it returned again and again while nothing had changed")

// settle is what Awaits are given to be under way before something happens.
const settle = 20 * time.Millisecond

// grants has everybody wait at once, does what lets them in, and says who was
// late where grants are pushed.
func (w *world) grants(trigger func(), ws ...waiter) (late string) {
	w.t.Helper()
	var did interval
	done := w.allGranted(func() { did = clock(trigger) }, ws)
	if took := done.Sub(did.answered); w.info.Push && took > prompt {
		return fmt.Sprintf("the last of %d waiters learned of its grant after %v", len(ws), took)
	}
	return ""
}

// grantsAfter is grants for what happens by itself at a known time.
func (w *world) grantsAfter(end time.Time, ws ...waiter) (late string) {
	w.t.Helper()
	done := w.allGranted(func() {}, ws)
	if took := done.Sub(end); w.info.Lease == driver.PerClaim && took > prompt {
		return fmt.Sprintf("the last of %d waiters learned of its grant %v after the lease before it had ended", len(ws), took)
	}
	return ""
}

// allGranted awaits every waiter in a goroutine of its own, and returns when the
// last of them has been granted.
func (w *world) allGranted(trigger func(), ws []waiter) time.Time {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	answers := make(chan error, len(ws))
	for _, x := range ws {
		go func() {
			t := x.ticket
			for calls := 0; !t.Granted; calls++ {
				if calls > mostCalls {
					answers <- errSpin
					return
				}
				var err error
				if t, err = x.view.Await(ctx, t); err != nil {
					answers <- err
					return
				}
			}
			answers <- nil
		}()
	}
	w.until(time.Now().Add(settle))
	trigger()
	for range ws {
		if err := <-answers; err != nil {
			w.t.Fatalf("Await of a claim that should be granted: %v", err)
		}
	}
	return time.Now()
}

// awaitGone awaits t while something ends it, and returns the error.
func (w *world) awaitGone(b driver.Backend, t driver.Ticket, trigger func()) error {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	answer := make(chan error, 1)
	go func() {
		for range mostCalls {
			now, err := b.Await(ctx, t)
			if err != nil || now.Granted {
				answer <- err
				return
			}
		}
		answer <- errSpin
	}()
	w.until(time.Now().Add(settle))
	trigger()
	return <-answer
}

// prompted plays a schedule until it is prompt once. A message may be lost, and a
// machine may be slow, but neither happens every time.
func (w *world) prompted(schedule func() (late string)) {
	w.t.Helper()
	var late string
	for range maxRounds {
		if late = schedule(); late == "" {
			return
		}
	}
	w.t.Errorf("in each of %d rounds: %s", maxRounds, late)
}

// promptly waits for cond for as long as a push may take.
func (w *world) promptly(cond func() bool) bool {
	w.t.Helper()
	end := time.Now().Add(prompt)
	for !cond() {
		if time.Now().After(end) {
			return false
		}
		w.until(time.Now().Add(pollEvery))
	}
	return true
}
