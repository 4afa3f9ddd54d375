package fencelock_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/fence"
)

func TestRoundTripsOfEachCall(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client(nil)
		l := w.lock(c, "k")
		w.steps("enter")
		w.held(errOf(c.TryLock(bg, "k")))
		w.steps() // this Client holds it, and knows
		ok(t, l.Renew(bg))
		w.steps("renew")
		w.release(l)
		w.steps("leave")
		w.release(l)
		w.steps() // the first result again

		w.release(w.got(c.TryLock(bg, "k")))
		w.steps("enter", "leave")
		w.release(w.got(c.RLock(bg, "k")))
		w.steps("enter", "leave")
		w.release(w.got(c.Acquire(bg, "s", 3, 5)))
		w.steps("enter", "leave")

		ran, err := c.Once(bg, "once", time.Time{}, func(context.Context, *fencelock.Lease) error { return nil })
		ranIs(t, true, ran, err)
		w.steps("enter", "leave")
		ran, err = c.Once(bg, "once", time.Time{}, nil)
		ranIs(t, false, ran, err)
		w.steps("enter", "leave")

		all, err := c.LockAll(bg, []string{"b", "a", "b"})
		must(t, err)
		w.steps("enter", "enter")
		ok(t, all.Release(bg))
		w.steps("leave", "leave")

		ok(t, errOf(c.Line(bg, "k")))
		w.steps("line")
		l = w.lock(c, "k", fencelock.MinHold(time.Second))
		ok(t, c.Break(bg, "k", l.Token(), fencelock.Break{}))
		w.steps("enter", "break")
		l.Release(bg)
		w.steps() // lost: there is nothing to give back
	})
}

func TestWaitBeyondAllTimesIsNoBound(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.client(nil), w.client(nil)
		l := w.lock(a, "k")
		const ever = fencelock.DefaultTTL * (1 << 28) // 255 years
		k := w.later(b, "k", fencelock.Wait(1<<63-1))
		k2 := w.later(a, "k", fencelock.Wait(ever))
		time.Sleep(time.Hour)
		if k.over() || k2.over() {
			t.Fatal("the wait ended", k.err, k2.err)
		}
		w.release(l)
		w.release(w.got(k.wait()))
		w.release(w.got(k2.wait()))
	})
}

// Tokens rise through the store, from goroutine to goroutine, from process to process, after a
// claim that was never granted, and after a loss.
func TestTokensRiseStrictly(t *testing.T) {
	inWorld(t, func(w *world) {
		var tokens []fence.Token
		var wg sync.WaitGroup
		for p := range 3 {
			c := w.client(&fencelock.Options{HandOff: []int{1, 3, 64}[p]})
			for g := range 4 {
				var opts []fencelock.Option
				if g == 3 {
					opts = append(opts, fencelock.Note("beside the local queue"))
				}
				wg.Go(func() {
					for range 25 {
						l := w.lock(c, "k", opts...)
						tokens = append(tokens, l.Token())
						time.Sleep(time.Millisecond)
						w.release(l)
					}
				})
			}
		}
		wg.Wait()
		steps.Same(t, "grants", len(tokens), 300)
		c := w.client(nil)
		broken := w.lock(c, "k")
		must(t, c.Break(bg, "k", broken.Token(), fencelock.Break{}))
		last := w.lock(c, "k")
		tokens = append(tokens, broken.Token(), last.Token())
		for i := range tokens[1:] {
			steps.Rises(t, tokens[i], tokens[i+1])
		}
		w.release(last)
	})
}

func TestRenewByHand(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client(&fencelock.Options{TTL: 30 * time.Second})
		l := w.lock(c, "k")
		before := l.Deadline()
		time.Sleep(5 * time.Second)
		must(t, l.Renew(bg))
		steps.Same(t, "the deadline moved by", l.Deadline().Sub(before), 5*time.Second)
		w.steps("enter", "renew")

		// Nobody answers: the lease is as it was.
		before = l.Deadline()
		w.store.meddle(only(silent, "renew"), nil)
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		err := l.Renew(ctx)
		w.is(err, fencelock.ErrUnavailable, context.DeadlineExceeded)
		w.not(err, fencelock.ErrLost)
		if !l.Deadline().Equal(before) || l.Err() != nil || l.Context().Err() != nil {
			t.Errorf("deadline %v, was %v; %v", l.Deadline(), before, l.Err())
		}
		w.store.heal()
		w.release(l)
	})
}

func TestLinesMayBeLeftAndEndsWithItsContext(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client(nil)
		w.lock(c, "a/1")
		w.lock(c, "a/2")
		for l, err := range c.Lines(bg, "a/") {
			if err != nil || !strings.HasPrefix(l.Key, "a/") {
				t.Errorf("%+v, %v", l, err)
			}
			break // must be possible
		}
		ctx, cancel := context.WithCancel(bg)
		cancel()
		errs := 0
		for _, err := range c.Lines(ctx, "") {
			w.is(err, context.Canceled)
			errs++
		}
		steps.Same(t, "errors", errs, 1)
	})
}

// In order of arrival: neither writers nor readers starve.
func TestReadersAndWritersAreServedInOrderOfArrival(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.client(nil), w.client(nil)
		held := w.got(a.RLock(bg, "k"))
		read := func() (*fencelock.Lease, error) { return b.RLock(bg, "k") }
		line := []*call{w.later(a, "k"), w.begin(read), w.later(b, "k"), w.begin(read)}
		w.held(errOf(b.RLock(bg, "k", fencelock.Wait(0))))
		for i, next := range line {
			for _, k := range line[i:] {
				steps.Same(t, "a claim has overtaken another", k.over(), false)
			}
			w.release(held)
			held = w.got(next.wait())
		}
		w.release(held)
	})
}

// A deploy changes the size of a semaphore while the old program holds permits. The new one is told both
// sizes, and has its own when the old one is gone.
func TestAnotherSizeIsErrKind(t *testing.T) {
	inWorld(t, func(w *world) {
		old, now := w.client(nil), w.client(nil)
		held := w.got(old.Acquire(bg, "s", 3, 3))
		for _, err := range []error{
			errOf(now.Acquire(bg, "s", 1, 5)), errOf(now.Acquire(bg, "s", 1, 2, fencelock.Wait(0))),
			errOf(old.Acquire(held.Context(), "s", 1, 4, fencelock.Reentrant())),
		} {
			w.is(err, fencelock.ErrKind)
			w.not(err, fencelock.ErrNotAcquired, fencelock.ErrUnavailable, fencelock.ErrInvalid)
			w.says(err, "it is a semaphore of size 3, not a semaphore of size ")
		}
		w.release(held)
		w.release(w.got(now.Acquire(bg, "s", 5, 5)))
	})
}

func TestWhatTheBackendCannotKeepIsInvalid(t *testing.T) {
	inWorld(t, func(w *world) {
		w.store.info.Fair, w.store.info.Linger = false, false
		c := w.client(nil)
		w.is(errOf(c.Acquire(bg, "s", 1, 3)), fencelock.ErrInvalid)
		w.is(errOf(c.Once(bg, "k", noon, neverRuns(t))), fencelock.ErrInvalid) // marks come with a line
		w.is(errOf(c.Lock(bg, "k", fencelock.MinHold(time.Second))), fencelock.ErrInvalid)
		w.steps()
		w.release(w.got(c.RLock(bg, "r"))) // readers are another matter
		w.release(w.lock(c, "k", fencelock.MinHold(0)))
	})
}
