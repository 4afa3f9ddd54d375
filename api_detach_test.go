package fencelock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/limit"
	"github.com/fencelock/fencelock/internal/testclient"
	"github.com/fencelock/fencelock/memlock"
)

func (w *world) detach(c *fencelock.Client, l *fencelock.Lease) fencelock.Handle {
	w.Helper()
	h, err := c.Detach(bg, l)
	must(w, err)
	return h
}

// A detached lease ends here without a release, and goes on elsewhere with its token.
func TestDetachedLeaseGoesOnElsewhere(t *testing.T) {
	inWorld(t, func(w *world) {
		var heard listener
		a, b := w.client(&fencelock.Options{Owner: "a"}), w.client(&fencelock.Options{Owner: "b", OnEvent: heard.on})
		l := w.lock(a, "k", fencelock.Note("first"))
		h := w.detach(a, l)
		if h.Key() != "k" || h.Token() != l.Token() || len(h) > 512 {
			t.Errorf("the handle is %q", h)
		}
		w.is(context.Cause(l.Context()), fencelock.ErrDetached)
		w.not(l.Err(), fencelock.ErrLost, fencelock.ErrReleased)
		ok(t, l.Release(bg))
		w.store.taken()
		time.Sleep(20 * time.Second)
		w.steps() // nobody renews it
		w.taken("k")

		x := w.got(b.Detached(h).Adopt(bg, fencelock.Note("second")))
		if x.Token() != l.Token() || x.Key() != "k" {
			t.Errorf("adopted %v, detached %v", x, l)
		}
		line := w.line(b, "k")
		if s := line.Claims[0]; s.Owner != "b" || s.Note != "second" {
			t.Errorf("the holder is %+v", s)
		}
		time.Sleep(time.Hour) // it is renewed again
		ok(t, x.Err())
		w.release(x)
		w.free("k")
		if names, _ := heard.take(); names[0] != "acquired" || names[len(names)-1] != "released" {
			t.Errorf("heard %q", names)
		}
	})
}

// Of those who adopt one handle, one gets the lease; the others learn at once.
func TestHandleIsForOne(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.client(nil), w.client(nil)
		h := w.detach(a, w.lock(a, "k"))
		l := w.got(b.Detached(h).Adopt(bg))
		for _, err := range []error{
			errOf(a.Detached(h).Adopt(bg)), a.Detached(h).Release(bg), renewErr(a.Detached(h)), errOf(a.Detached(h).Check(bg)),
		} {
			w.is(err, fencelock.ErrLost, fencelock.ErrBroken)
		}
		ok(t, l.Err())
		w.release(l)
	})
}

// A program that only passes handles on renews, looks and releases by them.
func TestHandleRenewsAndReleases(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.client(&fencelock.Options{TTL: 10 * time.Second}), w.client(nil)
		l := w.lock(a, "k")
		h := w.detach(a, l)
		for range 6 {
			time.Sleep(8 * time.Second)
			left, notice, err := b.Detached(h).Renew(bg, 0)
			if left < 9*time.Second || left > 10*time.Second || notice != nil || err != nil {
				t.Errorf("%v are left, %v", left, err)
			}
		}
		left, notice, err := b.Detached(h).Renew(bg, time.Minute)
		if left < 59*time.Second || left > time.Minute || notice != nil || err != nil {
			t.Errorf("%v are left, %v", left, err)
		}
		seen, err := b.Detached(h).Check(bg)
		if seen.Token != l.Token() || seen.Left != time.Minute || err != nil {
			t.Errorf("%+v, %v", seen, err)
		}
		ok(t, b.Detached(h).Release(bg))
		w.free("k")
		w.is(b.Detached(h).Release(bg), fencelock.ErrLost)
	})
}

// An Enter that is on its way when the lease is detached must not join the line once the
// lease was released by its handle.
func TestHandleKeepsOutALateEnter(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.client(nil)
		w.store.meddle(nil, only(atFirst(down), "enter"))
		h := w.detach(a, w.lock(a, "k"))
		ok(t, a.Detached(h).Release(bg))
		_, err := w.store.Store.Enter(bg, w.store.entered()[0])
		steps.Gone(t, "the late Enter", err)
		w.free("k")
	})
}

// The next goroutine of the same process joins the line; it does not get what was detached.
func TestDetachLetsTheLocalQueueGoOn(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.client(nil), w.client(nil)
		l := w.lock(a, "k")
		next := w.later(a, "k")
		h := w.detach(a, l)
		steps.Same(t, "the next one was granted", next.over(), false)
		x := w.got(b.Detached(h).Adopt(bg))
		time.Sleep(time.Minute)
		steps.Same(t, "the next one was granted", next.over(), false)
		w.release(x)
		steps.Rises(t, x.Token(), w.got(next.wait()).Token())
	})
}

// Permits and read locks pass on, too, and tokens of a span.
func TestEveryKindPassesOn(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.client(nil), w.client(nil)
		for range 3 {
			w.release(w.lock(a, "k"))
		}
		first := w.lock(a, "k")
		behind := w.later(a, "k")
		w.release(first)
		second := w.got(behind.wait()) // by hand-off: the second token of its claim
		r, p := w.got(a.RLock(bg, "r")), w.got(a.Acquire(bg, "s", 3, 5))
		for _, l := range []*fencelock.Lease{second, r, p} {
			x := w.got(b.Detached(w.detach(a, l)).Adopt(bg))
			steps.Same(t, l.Key()+": token", x.Token(), l.Token())
			w.release(x)
			w.free(l.Key())
		}
	})
}

func TestAdoptRidesOutALostAnswer(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.client(nil), w.client(nil)
		h := w.detach(a, w.lock(a, "k"))
		w.store.meddle(nil, only(inTurn(errDown, errDown, nil), "adopt"))
		w.release(w.got(b.Detached(h).Adopt(bg)))

		h = w.detach(a, w.lock(a, "k"))
		w.store.meddle(down, nil)
		start := time.Now()
		w.is(errOf(b.Detached(h).Adopt(bg)), fencelock.ErrUnavailable, errDown)
		tookAtMost(t, start, 3*time.Second)
		w.store.heal()
		w.release(w.got(b.Detached(h).Adopt(bg))) // no request had arrived
	})
}

func TestDetachRefusesWhatCannotPassOn(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.client(nil), w.client(nil)
		for _, opt := range []fencelock.Option{
			fencelock.MaxHold(time.Minute), fencelock.MinHold(time.Minute),
		} {
			l := w.lock(a, "k", opt)
			w.is(errOf(a.Detach(bg, l)), fencelock.ErrInvalid)
			w.release(l)
			time.Sleep(2 * time.Minute)
		}
		l := w.lock(a, "k")
		inner := w.got(a.Lock(l.Context(), "k", fencelock.Reentrant()))
		w.is(errOf(a.Detach(bg, l)), fencelock.ErrInvalid) // it is shared
		w.release(inner)
		w.is(errOf(b.Detach(bg, l)), fencelock.ErrInvalid) // of another Client
		w.release(l)
		w.is(errOf(a.Detach(bg, l)), fencelock.ErrReleased)
		l = w.lock(a, "k")
		must(t, a.Break(bg, "k", l.Token(), fencelock.Break{Reason: "stuck"}))
		w.is(errOf(a.Detach(bg, l)), fencelock.ErrBroken)
		w.is(l.Release(bg), fencelock.ErrBroken)
	})
}

func TestHandlesThatAreNone(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.client(nil)
		h := w.detach(a, w.lock(a, "k"))
		other := testclient.New(t, &named{memlock.New()}, nil)
		w.is(errOf(other.Detached(h).Adopt(bg)), fencelock.ErrInvalid)
		for _, bad := range []string{
			"", "x", string(h)[:len(h)-1], string(h) + "A", strings.Replace(string(h), "fl1.", "fl2.", 1),
			strings.Repeat("x", 600), strings.Repeat(".", 10), strings.ToUpper(string(h)),
		} {
			for _, err := range []error{
				errOf(a.Detached(fencelock.Handle(bad)).Adopt(bg)), a.Detached(fencelock.Handle(bad)).Release(bg),
				renewErr(a.Detached(fencelock.Handle(bad))), errOf(a.Detached(fencelock.Handle(bad)).Check(bg)),
			} {
				steps.Is(t, bad, err, fencelock.ErrInvalid)
			}
		}
		w.release(w.got(a.Detached(h + "\n").Adopt(bg))) // as it comes from a file

		odd := strings.Repeat("\x00\xff", 140)
		w.release(w.got(a.Detached(w.detach(a, w.lock(a, odd))).Adopt(bg)))
		long := w.lock(a, strings.Repeat("k", limit.Key))
		w.is(errOf(a.Detach(bg, long)), fencelock.ErrInvalid)
		w.release(long)

		none := testclient.New(t, struct{ driver.Backend }{memlock.New()}, nil).Detached(h)
		for _, err := range []error{
			errOf(none.Adopt(bg)), renewErr(none), none.Release(bg), errOf(none.Check(bg)), none.Finish(bg, time.Time{}, ""),
		} {
			w.is(err, fencelock.ErrInvalid)
		}
	})
}

// named is another store of the same kind.
type named struct{ *memlock.Store }

func (n *named) Info() driver.Info {
	info := n.Store.Info()
	info.Namespace = "another"
	return info
}

// Whoever's f of Once detaches the lease finishes the slot by the handle.
func TestSlotIsFinishedByHandle(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.client(nil), w.client(&fencelock.Options{Owner: "b"})
		slot := time.Date(2026, 11, 25, 13, 0, 0, 0, time.UTC)
		begin := func() (h fencelock.Handle, ran bool) {
			detached := errors.New("detached")
			ran, err := a.Once(bg, "k", slot, func(ctx context.Context, l *fencelock.Lease) (err error) {
				if l.TTL() != time.Minute || a.Detached("") == nil {
					t.Errorf("a lease of %v", l.TTL())
				}
				h = w.detach(a, l)
				return detached
			}, fencelock.NoRenewal(), fencelock.TTL(time.Minute), fencelock.Owner("for alice"))
			if ran {
				w.is(err, detached)
			} else {
				ok(t, err)
			}
			return h, ran
		}
		first, ran := begin()
		if line := w.line(b, "k"); !ran || !line.Done.IsZero() || line.Claims[0].Owner != "for alice" {
			t.Errorf("ran: %v, the line is %+v", ran, line)
		}
		ok(t, b.Detached(first).Release(bg)) // the work failed
		w.is(b.Detached(first).Finish(bg, slot, ""), fencelock.ErrLost)

		second, ran := begin()
		steps.Same(t, "a released slot ran", ran, true)
		w.is(b.Detached(second).Finish(bg, slot, strings.Repeat("x", 257)), fencelock.ErrInvalid)
		w.is(b.Detached("no handle").Finish(bg, slot, ""), fencelock.ErrInvalid)
		ok(t, b.Detached(second).Finish(bg, slot, "alice"))
		if line := w.line(b, "k"); !line.Slot.Equal(slot) || line.DoneBy != "alice" {
			t.Errorf("the last run is %+v", line.Done)
		}
		if _, ran = begin(); ran {
			t.Error("the slot ran again")
		}
		late := w.detach(a, w.lock(a, "k"))
		ok(t, b.Detached(late).Finish(bg, slot.Add(-time.Nanosecond), "bob"))
		ok(t, b.Detached(late).Finish(bg, slot.Add(-time.Nanosecond), "bob"))
		w.is(b.Detached(late).Finish(bg, slot.Add(time.Nanosecond), "bob"), fencelock.ErrLost)
		if line := w.line(b, "k"); !line.Slot.Equal(slot) || line.DoneBy != "alice" {
			t.Errorf("the last run, after that of an older slot, is %+v", line.Done)
		}
		reader := w.detach(a, w.got(a.RLock(bg, "r")))
		w.is(b.Detached(reader).Finish(bg, slot, ""), fencelock.ErrInvalid)
		ok(t, b.Detached(reader).Release(bg))
	})
}

// A goroutine of a handler took a share while another one detached the lease. The share went on
// beside the handle, never ended, and its Release took the lock from whoever had adopted it.
func TestLeaseIsNotSharedWhileItIsDetached(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.client(nil), w.client(nil)
		l := w.lock(a, "k")
		inside := l.Context()
		share := func() (*fencelock.Lease, error) { return a.Lock(inside, "k", fencelock.Reentrant()) }
		during := func(context.Context, string) error {
			w.is(errOf(share()), fencelock.ErrDetached)
			w.is(errOf(a.Detach(bg, l)), fencelock.ErrInvalid)
			return nil
		}
		w.store.meddle(only(during, "detach"), nil)
		h := w.detach(a, l)
		w.is(errOf(share()), fencelock.ErrDetached)
		x := w.got(b.Detached(h).Adopt(bg))
		start := time.Now()
		must(t, a.Shutdown(bg)) // nothing is held here
		tookAtMost(t, start, time.Second)
		ok(t, x.Err())
		w.taken("k")
		w.release(x)
	})
}

// A Detach that fails, or finds that it cannot be, leaves the lease as it was: it is renewed, and shared.
func TestLeaseIsSharedAfterAFailedDetach(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.client(nil)
		for key, wants := range map[string]error{"k": fencelock.ErrUnavailable, strings.Repeat("k", limit.Key): fencelock.ErrInvalid} {
			l := w.lock(a, key)
			w.store.meddle(only(down, "detach"), nil)
			w.is(errOf(a.Detach(bg, l)), wants)
			time.Sleep(time.Hour)
			ok(t, l.Err())
			w.store.heal()
			share := w.got(a.Lock(l.Context(), key, fencelock.Reentrant()))
			w.is(errOf(a.Detach(bg, l)), fencelock.ErrInvalid)
			w.release(share)
			w.release(l)
		}
	})
}

// A Client was closed while it adopted a lease, or its request was late. The store had applied the
// request, so the key stayed taken for a TTL by a lease that nobody had.
func TestAdoptWithoutAnAnswerIsUndone(t *testing.T) {
	for name, end := range map[string]func(ctx context.Context, b *fencelock.Client) error{
		"closed": func(ctx context.Context, b *fencelock.Client) error {
			go b.Close()
			<-ctx.Done()
			return ctx.Err()
		},
		"no answer": func(ctx context.Context, _ *fencelock.Client) error { return errDown },
	} {
		for _, applied := range []bool{false, true} {
			runInWorld(t, name, func(t *testing.T, w *world) {
				a, b := w.client(nil), w.client(nil)
				h := w.detach(a, w.lock(a, "k"))
				cut := only(func(ctx context.Context, _ string) error { return end(ctx, b) }, "adopt")
				if applied {
					w.store.meddle(nil, cut)
				} else {
					w.store.meddle(cut, nil)
				}
				_, err := b.Detached(h).Adopt(bg)
				if name == "closed" {
					w.is(err, fencelock.ErrClosed)
				} else {
					w.is(err, fencelock.ErrUnavailable)
				}
				w.store.heal()
				ok(t, b.Close())
				if err := a.Detached(h).Release(bg); applied {
					w.is(err, fencelock.ErrLost)
				} else {
					ok(t, err)
				}
				w.free("k")
			})
		}
	}
}

// A lease of an hour is adopted with a shorter one. The store keeps the longer one until it is released.
func TestAdoptDoesNotShortenTheLeaseInTheStore(t *testing.T) {
	inWorld(t, func(w *world) {
		c, other := w.client(nil), w.client(nil)
		start := time.Now()
		h := w.detach(c, w.lock(c, "a", fencelock.TTL(time.Hour)))
		l := w.got(other.Detached(h).Adopt(bg, fencelock.TTL(5*time.Second), fencelock.NoRenewal()))
		next := w.lock(c, "a")
		steps.Same(t, "the key was free after", time.Since(start), time.Hour)
		w.is(l.Err(), fencelock.ErrExpired)
		ok(t, next.Release(bg))
	})
}

// renewErr is the error of a Renew.
func renewErr(d *fencelock.Detached) error {
	_, _, err := d.Renew(bg, 0)
	return err
}
