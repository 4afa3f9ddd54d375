package fencelock_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
)

var errWork = errors.New("the work failed")

func TestDoReleasesWhenItsFunctionPanics(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client(nil)
		func() {
			defer func() {
				if p := recover(); p != "boom" {
					t.Errorf("recovered %v", p)
				}
			}()
			c.Do(bg, "k", func(context.Context, *fencelock.Lease) error { panic("boom") })
			t.Error("the panic was swallowed")
		}()
		w.free("k")

		done := make(chan struct{})
		go func() { // t.FailNow in f is a Goexit
			defer close(done)
			c.Do(bg, "k", func(context.Context, *fencelock.Lease) error { runtime.Goexit(); return nil })
		}()
		<-done
		w.free("k")
	})
}

// A caller that repeats on error must not run the work again because a reply got lost.
func TestDoDoesNotFailBecauseOfAnUnconfirmedRelease(t *testing.T) {
	for name, fault := range faults {
		runInWorld(t, name, func(t *testing.T, w *world) {
			var heard listener
			heard.only = []fencelock.EventType{fencelock.EventReleased}
			c := w.client(&fencelock.Options{OnEvent: heard.on})
			err := c.Do(bg, "k", func(context.Context, *fencelock.Lease) error {
				w.store.meddle(only(fault, "leave"), nil)
				return nil
			})
			ok(t, err)
			w.store.heal()
			time.Sleep(10 * time.Second)
			w.is(w.wantEvents(&heard, "released")[0].Err, fencelock.ErrUnavailable)
			w.free("k")
		})
	}
}

// f's context ends with the lease and with ctx, whichever ends first.
func TestLeaseDoEndsItsContextWithBoth(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client(nil)
		cause := errors.New("enough")
		l := w.lock(c, "k")
		ctx, cancel := context.WithCancelCause(bg)
		time.AfterFunc(time.Second, func() { cancel(cause) })
		err := l.Do(ctx, func(ctx context.Context, l *fencelock.Lease) error {
			<-ctx.Done()
			w.is(context.Cause(ctx), cause)
			return l.Err()
		})
		ok(t, err)

		l = w.lock(c, "k")
		err = l.Do(bg, func(ctx context.Context, l *fencelock.Lease) error {
			time.AfterFunc(time.Second, func() { c.Break(bg, "k", l.Token(), fencelock.Break{}) })
			<-ctx.Done()
			w.is(context.Cause(ctx), fencelock.ErrBroken)
			return nil
		})
		w.is(err, fencelock.ErrBroken)
	})
}

// Running the work without the lock is the one thing that Do must not do.
func TestLeaseDoAfterTheEndDoesNotRun(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client(nil)
		f := func(context.Context, *fencelock.Lease) error { t.Error("f ran"); return nil }

		l := w.lock(c, "k")
		w.release(l)
		w.is(l.Do(bg, f), fencelock.ErrReleased)

		l = w.lock(c, "k")
		must(t, c.Break(bg, "k", l.Token(), fencelock.Break{}))
		w.is(l.Do(bg, f), fencelock.ErrLost, fencelock.ErrBroken)
	})
}

// The function of Lease.Do runs in the goroutine that holds what ctx carries: to
// lock one of those again would be to wait for itself.
func TestLeaseDoCarriesWhatItsContextHolds(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client(nil)
		b := w.lock(c, "b")
		a := w.lock(c, "a")
		err := b.Do(a.Context(), func(ctx context.Context, _ *fencelock.Lease) error {
			if fencelock.Held(ctx, "a") != a || fencelock.Held(ctx, "b") != b {
				t.Error("the context does not carry both")
			}
			w.is(errOf(c.Lock(ctx, "a", fencelock.Wait(time.Second))), fencelock.ErrDeadlock)
			w.is(errOf(c.Lock(ctx, "b", fencelock.Wait(time.Second))), fencelock.ErrDeadlock)
			return nil
		})
		ok(t, err)
		w.release(a)
	})
}
