package fencelock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/drivertest/steps"
)

// The Enter is applied and its reply is lost. Asked again with the same ID, the
// store finds the claim; with a new one it would queue behind itself.
func TestLostReplyToEnterMakesOneClaim(t *testing.T) {
	inWorld(t, func(w *world) {
		w.store.meddle(nil, only(atFirst(down), "enter"))
		begin := time.Now()
		l := w.lock(w.brief(), "k")
		tookAtMost(t, begin, ttl/3)
		if e := w.store.entered(); len(e) != 2 || e[0].ID != e[1].ID {
			t.Errorf("Enters: %+v", e)
		}
		w.release(l)
		if !w.store.left()[0].Tombstone {
			t.Error("the release after a repeated Enter leaves no tombstone: a delayed copy of the first Enter would be a ghost")
		}
	})
}

// inTheNetwork has a request arrive after d, when nobody waits for its answer any more. late gets the answer.
func inTheNetwork(d time.Duration, late chan<- error) hook {
	return func(ctx context.Context, _ string) error {
		request := requestOf(ctx)
		go func() {
			time.Sleep(d)
			late <- request.arrive()
		}()
		return errDown
	}
}

// The first Enter arrives after the second one was granted and released.
func TestDelayedEnterAfterReleaseIsNoGhost(t *testing.T) {
	inWorld(t, func(w *world) {
		late := make(chan error)
		w.store.meddle(only(atFirst(inTheNetwork(5*time.Second, late)), "enter"), nil)
		w.release(w.lock(w.brief(), "k"))
		steps.Gone(t, "the delayed Enter", <-late)
		wantEmpty(t, w.store.Store)
	})
}

// slowly is a step that takes a while, and ends with its ctx.
func slowly(ctx context.Context, _ string) error {
	select {
	case <-time.After(100 * time.Millisecond):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// arrivesSlowly is slowly for a request that is on its way all the same when its ctx ends.
func arrivesSlowly(ctx context.Context, step string) error {
	err := slowly(ctx, step)
	if err != nil {
		_ = inTheNetwork(50*time.Millisecond, make(chan error, 1))(ctx, step)
	}
	return err
}

// The call is cancelled at each of a hundred moments of an acquisition that takes
// a while: before Enter is applied, after, in line, at the grant.
//
//verify:fault The API, on all stores | the context ends at each step
func TestCancelledLockLeavesNothing(t *testing.T) {
	for step := range 100 {
		inWorld(t, func(w *world) {
			l := w.lock(w.brief(), "k")
			for _, handOff := range []int{1, 8} {
				b, c := w.apart(&fencelock.Options{TTL: ttl, HandOff: handOff})
				b.meddle(only(arrivesSlowly, "enter"), only(slowly, "enter"))
				ctx, cancel := context.WithCancelCause(bg)
				why := errors.New("the user went home")
				time.AfterFunc(time.Duration(step)*5*time.Millisecond+time.Microsecond, func() { cancel(why) })
				if step == 50 {
					time.AfterFunc(250*time.Millisecond, func() { l.Release(bg) })
				}
				begin := time.Now()
				got, err := c.Lock(ctx, "k")
				if late := time.Since(begin) - time.Duration(step)*5*time.Millisecond; late > time.Millisecond {
					t.Errorf("it returned %v after it was cancelled", late)
				}
				switch {
				case err == nil:
					w.release(got)
				case !errors.Is(err, context.Canceled) || !errors.Is(err, why):
					t.Errorf("step %d: %v", step, err)
				case step > 40 && !errors.Is(err, fencelock.ErrNotAcquired):
					t.Errorf("step %d: in line, and not ErrNotAcquired: %v", step, err)
				}
				time.Sleep(time.Second)
				want := 1 // the holder's
				if step == 50 {
					want = 0
				}
				if line, _ := w.store.Store.Line(bg, "k"); len(line.Claims) != want {
					t.Errorf("step %d, hand-off %d: want %d in line: %+v", step, handOff, want, line.Claims)
				}
				c.Close()
			}
			l.Release(bg)
		})
	}
}

func TestLockRidesOutAnOutage(t *testing.T) {
	inWorld(t, func(w *world) {
		w.store.meddle(down, nil)
		time.AfterFunc(5*time.Minute, w.store.heal)
		l := w.lock(w.brief(), "k")
		if n := w.store.count("enter"); n > 700 {
			t.Errorf("%d tries in five minutes: that is no back-off", n)
		}
		w.release(l)
	})
}

// The Leave was applied, its reply lost; the second one finds nothing. That is no
// loss: nobody but this call can have removed the claim before its lease was over.
func TestReleaseWhoseReplyWasLostIsARelease(t *testing.T) {
	inWorld(t, func(w *world) {
		w.store.meddle(nil, only(atFirst(down), "leave"))
		w.release(w.lock(w.brief(), "k"))
	})
}

// TestLateEnterOfAWaiterIsKeptOut: an Enter would start a lease of hours if it were granted. It
// arrives long after the waiter has left, and is kept out as long as that.
func TestLateEnterOfAWaiterIsKeptOut(t *testing.T) {
	inWorld(t, func(w *world) {
		holder := w.lock(w.brief(), "k")
		b, c := w.apart(&fencelock.Options{TTL: 30 * time.Second})
		late := make(chan error)
		b.meddle(only(atFirst(inTheNetwork(time.Hour, late)), "enter"), nil)
		w.held(errOf(c.Lock(bg, "k", fencelock.NoRenewal(), fencelock.TTL(6*time.Hour), fencelock.Wait(5*time.Second))))
		w.release(holder)
		steps.Gone(t, "the late Enter", <-late)
	})
}
