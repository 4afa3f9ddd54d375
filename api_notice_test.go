package fencelock_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testclient"
)

// atNotice is the notice of these tests, and early how much before its end a holder stops.
const (
	atNotice = 30 * time.Second
	early    = atNotice/100 + 3*time.Millisecond
)

// notice has c give notice to the holder of l.
func (w *world) notice(c *fencelock.Client, l *fencelock.Lease, d time.Duration) {
	w.Helper()
	must(w.T, c.Break(bg, l.Key(), l.Token(), fencelock.Break{Reason: "deploy", Notice: d}))
	synctest.Wait()
}

// revoked reports whether the holder of l has heard of a notice, and when that ends.
func revoked(l *fencelock.Lease) (end time.Time, heard bool) {
	select {
	case <-l.Revoked():
		_, end = l.Revocation()
		return end, true
	default:
		return end, false
	}
}

// stopsWithNotice waits until the notice that was given at time given has ended l.
func (w *world) stopsWithNotice(l *fencelock.Lease, given time.Time) {
	w.Helper()
	<-l.Context().Done()
	if took := time.Since(given); took > atNotice || took < atNotice-early {
		w.Errorf("the context ended after %v; want %v", took, atNotice)
	}
	w.is(context.Cause(l.Context()), fencelock.ErrBroken, fencelock.ErrLost)
	w.is(l.Err(), fencelock.ErrBroken)
	w.says(l.Err(), "deploy")
}

// endsWithNotice waits until the store has ended the claim, too.
func (w *world) endsWithNotice(l *fencelock.Lease, given time.Time) {
	w.Helper()
	w.stopsWithNotice(l, given)
	time.Sleep(time.Until(given.Add(atNotice)))
}

// The store ends the claim, though its holder renews it and the operator has gone.
func TestNoticeEndsTheLease(t *testing.T) {
	for _, how := range []string{"own client", "other client", "own client without push", "without push"} {
		for _, ttl := range []time.Duration{12 * time.Second, time.Minute} { // shorter and longer than the notice
			runInWorld(t, how+" "+ttl.String(), func(t *testing.T, w *world) {
				o := &fencelock.Options{TTL: ttl}
				a, late := w.client(o), time.Duration(0)
				if strings.HasSuffix(how, "without push") {
					a = w.mute(o)
				}
				l := w.lock(a, "k")
				given := time.Now()
				if strings.HasPrefix(how, "own client") {
					w.notice(a, l, atNotice)
				} else {
					operator := testclient.New(t, w.store.Store, nil)
					w.notice(operator, l, atNotice)
					ok(t, operator.Close())
				}
				if how == "without push" {
					late = ttl / 3
				}
				<-l.Revoked()
				tookAtMost(t, given, late)
				reason, end := l.Revocation()
				if d := end.Sub(given); reason != "deploy" || d > atNotice || d < atNotice-early {
					t.Errorf("revoked for %q in %v", reason, d)
				}
				ok(t, l.Err())
				ok(t, l.Renew(bg))
				time.Sleep(time.Until(given.Add(atNotice - time.Second)))
				ok(t, l.Err())
				w.taken("k")
				w.endsWithNotice(l, given)
				w.free("k")
			})
		}
	}
}

func TestHolderThatLeavesInTimeLeavesCleanly(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.client(nil), w.client(nil)
		l := w.lock(a, "k", fencelock.LockDelay(lockDelay))
		k := w.later(b, "k")
		must(t, b.Break(bg, "k", l.Token(), fencelock.Break{Reason: "deploy", Notice: atNotice, Delay: time.Hour}))
		<-l.Revoked()
		time.Sleep(5 * time.Second)
		w.release(l)
		w.is(context.Cause(l.Context()), fencelock.ErrReleased)
		w.release(w.got(k.wait()))
		if k.took > 6*time.Second {
			t.Errorf("the next one waited for %v", k.took)
		}
		reason, end := l.Revocation()
		if reason != "deploy" || end.IsZero() {
			t.Error("the lease has forgotten its notice")
		}
	})
}

// The delay follows the notice, also when the holder tidies up after the loss, or its Client closes.
func TestDelayFollowsTheNotice(t *testing.T) {
	for _, then := range []string{"", "Release", "Close"} {
		for _, own := range []bool{false, true} {
			runInWorld(t, then, func(t *testing.T, w *world) {
				a := testclient.New(t, w.store, nil)
				var opts []fencelock.Option
				how := fencelock.Break{Reason: "deploy", Notice: atNotice, Delay: lockDelay}
				if own {
					opts, how.Delay = append(opts, fencelock.LockDelay(lockDelay)), 0
				}
				l := w.lock(a, "k", opts...)
				given := time.Now()
				must(t, w.client(nil).Break(bg, "k", l.Token(), how))
				w.stopsWithNotice(l, given)
				switch then {
				case "Release":
					w.is(l.Release(bg), fencelock.ErrBroken)
				case "Close":
					ok(t, a.Close())
				}
				time.Sleep(time.Until(given.Add(atNotice + lockDelay - time.Second)))
				w.taken("k")
				time.Sleep(time.Second)
				w.free("k")
				ok(t, a.Close())
			})
		}
	}
}

func TestRepeatedNoticeIsNeverShortened(t *testing.T) {
	for _, push := range []bool{true, false} {
		runInWorld(t, "", func(t *testing.T, w *world) {
			a, b := w.client(nil), w.client(nil)
			if !push {
				a = w.mute(nil)
			}
			l := w.lock(a, "k")
			given := time.Now()
			w.notice(b, l, atNotice)
			w.notice(b, l, time.Second)
			w.notice(a, l, 2*time.Second)
			time.Sleep(15 * time.Second)
			ok(t, l.Err())
			end, _ := revoked(l)
			if d := end.Sub(given); d < atNotice-early || d > atNotice {
				t.Errorf("it ends after %v", d)
			}
			w.endsWithNotice(l, given)
		})
	}
	runInWorld(t, "a later end", func(t *testing.T, w *world) {
		a, b := w.client(&fencelock.Options{TTL: 12 * time.Second}), w.client(nil)
		l := w.lock(a, "k")
		w.notice(b, l, 10*time.Second)
		given := time.Now()
		w.notice(b, l, atNotice)
		w.endsWithNotice(l, given)
	})
	runInWorld(t, "now", func(t *testing.T, w *world) {
		a, b := w.client(nil), w.client(nil)
		l := w.lock(a, "k")
		w.notice(b, l, atNotice)
		must(t, b.Break(bg, "k", l.Token(), fencelock.Break{Reason: "now"}))
		w.says(l.Err(), "now")
		w.free("k")
	})
}

// A claim under notice serves no other goroutine: the next one joins the line, behind the others.
func TestRevokedClaimIsNotHandedOn(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.client(nil), w.client(nil)
		l1 := w.lock(a, "k")
		k2 := w.later(a, "k")
		k3 := w.later(a, "k")
		w.release(l1)
		l2 := w.got(k2.wait())
		steps.Same(t, "the token of the next", l2.Token(), l1.Token()+1)
		next := w.later(b, "k")
		w.notice(b, l1, atNotice) // any token of the span
		<-l2.Revoked()
		if _, heard := revoked(l1); heard {
			t.Error("a lease that had ended was revoked")
		}
		w.release(l2)
		x := w.got(next.wait())
		w.release(x)
		l3 := w.got(k3.wait())
		time.Sleep(time.Minute)
		if _, heard := revoked(l3); heard || l3.Token() <= x.Token() {
			t.Errorf("%v follows %v; revoked: %v", l3, x, heard)
		}
		w.release(l3)
	})
}

// Of several who hold a key, the one is given notice whose token it is.
func TestNoticeIsForOneOfSeveralHolders(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client(nil)
		held := []*fencelock.Lease{
			w.got(c.RLock(bg, "r")), w.got(c.RLock(bg, "r")),
			w.got(c.Acquire(bg, "s", 1, 3)), w.got(c.Acquire(bg, "s", 2, 3)),
		}
		for i, l := range held {
			w.notice(w.client(nil), l, atNotice)
			for j, each := range held[i:] {
				if _, heard := revoked(each); heard != (j == 0) {
					t.Errorf("notice to %v: %v has heard: %v", l, each, heard)
				}
			}
			w.release(l)
		}
	})
}

func TestSharesOfAGrantAreRevokedTogether(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client(nil)
		outer := w.lock(c, "k")
		inner := w.got(c.Lock(outer.Context(), "k", fencelock.Reentrant()))
		given := time.Now()
		w.notice(w.client(nil), outer, atNotice)
		late := w.got(c.Lock(inner.Context(), "k", fencelock.Reentrant()))
		for _, l := range []*fencelock.Lease{outer, inner, late} {
			if _, heard := revoked(l); !heard {
				t.Errorf("%v has not heard", l)
			}
		}
		w.release(late)
		w.endsWithNotice(inner, given)
		w.is(outer.Err(), fencelock.ErrBroken)
		w.is(inner.Release(bg), fencelock.ErrBroken)
		w.is(outer.Release(bg), fencelock.ErrBroken)
	})
}

// A handle is under the notice, and so is the process that adopts it.
func TestNoticeGoesWithTheHandle(t *testing.T) {
	for _, when := range []string{"before Detach", "after Detach"} {
		runInWorld(t, when, func(t *testing.T, w *world) {
			a, b := w.client(nil), w.client(nil)
			l := w.lock(a, "k")
			given := time.Now()
			if when == "before Detach" {
				w.notice(b, l, atNotice)
			}
			h := w.detach(a, l)
			if when == "after Detach" {
				w.notice(b, l, atNotice)
			}
			time.Sleep(time.Second)
			left, notice, err := b.Detached(h).Renew(bg, time.Hour)
			if err != nil || notice == nil || notice.Reason != "deploy" || left > atNotice-time.Second || left < 28*time.Second {
				t.Errorf("Renew: %v left, %+v, %v", left, notice, err)
			}
			adopted := w.got(b.Detached(h).Adopt(bg))
			<-adopted.Revoked()
			w.endsWithNotice(adopted, given)
			w.is(adopted.Release(bg), fencelock.ErrBroken)
		})
	}
}

// Of MaxHold and a notice the earlier end counts.
func TestNoticeAndMaxHold(t *testing.T) {
	for maxHold, cause := range map[time.Duration]error{
		10 * time.Second: fencelock.ErrMaxHold, time.Minute: fencelock.ErrBroken,
	} {
		runInWorld(t, maxHold.String(), func(t *testing.T, w *world) {
			l := w.lock(w.client(nil), "k", fencelock.MaxHold(maxHold))
			begun := time.Now()
			w.notice(w.client(nil), l, atNotice)
			<-l.Context().Done()
			tookAtMost(t, begun, min(maxHold, atNotice))
			w.is(context.Cause(l.Context()), cause)
			w.is(l.Release(bg), cause)
			time.Sleep(time.Second)
			w.free("k") // a holder that has stopped and says so opens the key
		})
	}
}

// Without push and without a watchdog, the holder hears by its Renew.
func TestNoticeWithNoRenewal(t *testing.T) {
	inWorld(t, func(w *world) {
		l := w.lock(w.mute(nil), "k", fencelock.NoRenewal(), fencelock.TTL(time.Hour))
		given := time.Now()
		w.notice(w.client(nil), l, atNotice)
		ok(t, l.Renew(bg))
		if _, heard := revoked(l); !heard {
			t.Error("the holder has not heard")
		}
		w.endsWithNotice(l, given)
	})
}

// The holder counts on the store's promise for a notice, and on no lease that it cannot renew.
func TestNoticeInAnOutage(t *testing.T) {
	for name, fault := range faults {
		runInWorld(t, name+", short notice", func(t *testing.T, w *world) {
			l := w.lock(w.client(&fencelock.Options{TTL: time.Minute}), "k")
			given := time.Now()
			w.notice(w.client(nil), l, atNotice)
			w.store.meddle(fault, nil)
			w.endsWithNotice(l, given)
		})
		runInWorld(t, name+", long notice", func(t *testing.T, w *world) {
			l := w.lock(w.client(&fencelock.Options{TTL: 12 * time.Second}), "k")
			w.notice(w.client(nil), l, time.Hour)
			time.Sleep(time.Second) // the store confirms it
			w.store.meddle(fault, nil)
			begun := time.Now()
			<-l.Context().Done()
			tookAtMost(t, begun, 12*time.Second)
			w.is(l.Err(), fencelock.ErrExpired)
			w.store.heal()
			w.is(l.Release(bg), fencelock.ErrExpired)
			time.Sleep(time.Second)
			w.free("k") // nobody has to wait for the end of a notice that nobody uses
		})
	}
}

// One event tells of a notice. A lease that is to end is not at risk, and is not renewed.
func TestEventsOfANotice(t *testing.T) {
	for _, push := range []bool{true, false} {
		runInWorld(t, "", func(t *testing.T, w *world) {
			var heard listener
			o := &fencelock.Options{TTL: 12 * time.Second, OnEvent: heard.on}
			a := w.client(o)
			if !push {
				a = w.mute(o)
			}
			l := w.lock(a, "k")
			given := time.Now()
			w.notice(w.client(nil), l, atNotice)
			w.notice(w.client(nil), l, atNotice)
			w.endsWithNotice(l, given)
			synctest.Wait()
			names, events := heard.take()
			if want := []string{"acquired", "revoked", "lost"}; !slices.Equal(names, want) {
				t.Fatalf("events: %q, want %q", names, want)
			}
			e := events[1]
			if e.Key != "k" || e.Token != l.Token() || e.Reason != "deploy" || e.Left <= 20*time.Second || e.Left > atNotice {
				t.Errorf("event: %+v", e)
			}
		})
	}
}

// A store may lose a notice, as by a failover. The holder keeps to it, and then leaves.
func TestNoticeThatTheStoreForgets(t *testing.T) {
	inWorld(t, func(w *world) {
		l := w.lock(w.client(&fencelock.Options{TTL: 12 * time.Second}), "k")
		given := time.Now()
		w.notice(w.client(nil), l, atNotice)
		time.Sleep(time.Second)
		w.store.forgets()
		w.store.taken()
		time.Sleep(15 * time.Second)
		if n := len(w.store.taken()); n > 5 {
			t.Errorf("%d requests in 15 s", n)
		}
		w.endsWithNotice(l, given)
		time.Sleep(12 * time.Second)
		if steps := w.store.taken(); !slices.Contains(steps, "leave") {
			t.Errorf("the claim is left to the store, which may renew it with others: %q", steps)
		}
		w.free("k")
	})
}

func TestNoticeThatCannotBe(t *testing.T) {
	inWorld(t, func(w *world) {
		w.store.info.MinTTL, w.store.info.MaxTTL = time.Second, time.Hour
		c := w.client(nil)
		l := w.lock(c, "k")
		w.store.taken()
		for says, d := range map[string]time.Duration{"must not be negative": -1, "at most 1h0m0s": 2 * time.Hour} {
			err := c.Break(bg, "k", l.Token(), fencelock.Break{Notice: d})
			w.is(err, fencelock.ErrInvalid)
			w.says(err, says)
		}
		w.steps()
		w.store.info.Linger = false // such a store gives notice all the same
		w.store.info.SharedLease = true
		c = w.client(nil)
		other := w.lock(c, "m")
		w.notice(c, other, 2*time.Hour) // longer than any lease
		w.release(other)
		w.notice(c, l, time.Millisecond) // the shortest lease
		ok(t, l.Err())
		time.Sleep(time.Second)
		w.is(l.Err(), fencelock.ErrBroken)
	})
}

// A claim was given notice after the store had granted it and before the call knew: its holder hears
// of the notice as it gets the lease.
func TestNoticeBeforeTheGrantIsTaken(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.mute(nil), w.client(nil)
		l := w.lock(b, "k")
		given := make(chan time.Time, 1)
		w.store.meddle(nil, func(_ context.Context, step string) error {
			if step != "await" {
				return nil
			}
			line, err := w.store.Store.Line(bg, "k")
			must(w.T, err)
			if c := line.Claims[0]; c.Token != int64(l.Token()) && len(given) == 0 {
				given <- time.Now()
				must(w.T, w.store.Store.Break(bg, "k", c.Token, driver.Break{Reason: "deploy", Notice: atNotice}))
				time.Sleep(15 * time.Second) // and the response is late, so that the claim is renewed before
				return nil
			}
			return nil
		})
		k := w.later(a, "k")
		w.release(l)
		got := w.got(k.wait())
		if _, heard := revoked(got); !heard {
			t.Error("the holder has not heard")
		}
		w.endsWithNotice(got, <-given)
	})
}
