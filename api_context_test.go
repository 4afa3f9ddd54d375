package fencelock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/drivertest/steps"
)

// The end of the caller's ctx ends the Context of the lease, not the lease.
func TestLeaseOutlivesItsCallersContext(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client(&fencelock.Options{TTL: 3 * time.Second})
		cause := errors.New("enough")
		ctx, cancel := context.WithCancelCause(bg)
		l := w.got(c.Lock(ctx, "k"))
		cancel(cause)
		if l.Context().Err() == nil {
			t.Error("Context did not end with the caller's")
		}
		w.is(context.Cause(l.Context()), cause)
		time.Sleep(time.Hour) // renewed many times
		ok(t, l.Err())
		if !l.Deadline().After(time.Now()) {
			t.Error("the deadline has passed")
		}
		w.taken("k")
		w.release(l)
		w.free("k")
	})
}

// endsWith waits for the end of l, and judges its cause.
func (w *world) endsWith(l *fencelock.Lease, is, not []error) {
	w.Helper()
	<-l.Context().Done()
	w.is(l.Context().Err(), context.Canceled)
	for _, err := range []error{context.Cause(l.Context()), l.Err()} {
		w.is(err, is...)
		w.not(err, not...)
		w.not(err, fencelock.ErrNotAcquired, fencelock.ErrUnavailable, fencelock.ErrInvalid)
	}
}

func TestCauseOfTheContextSaysWhyTheLeaseEnded(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(w *world, c *fencelock.Client, l *fencelock.Lease)
		opts []fencelock.Option
		is   []error
		not  []error
	}{
		"released": {
			end: func(_ *world, _ *fencelock.Client, l *fencelock.Lease) { l.Release(bg) },
			is:  []error{fencelock.ErrReleased},
			not: []error{fencelock.ErrLost, fencelock.ErrExpired},
		},
		"expired": {
			end: func(w *world, _ *fencelock.Client, _ *fencelock.Lease) { w.store.meddle(down, nil) },
			is:  []error{fencelock.ErrLost, fencelock.ErrExpired},
			not: []error{fencelock.ErrReleased, fencelock.ErrMaxHold, fencelock.ErrBroken, fencelock.ErrClosed},
		},
		"broken": {
			end: func(_ *world, c *fencelock.Client, l *fencelock.Lease) {
				c.Break(bg, "k", l.Token(), fencelock.Break{Reason: "deploy"})
			},
			is:  []error{fencelock.ErrLost, fencelock.ErrBroken},
			not: []error{fencelock.ErrReleased, fencelock.ErrExpired, fencelock.ErrMaxHold, fencelock.ErrClosed},
		},
		"lost by the store": {
			end: func(w *world, _ *fencelock.Client, _ *fencelock.Lease) { w.store.Flush() },
			is:  []error{fencelock.ErrLost, fencelock.ErrBroken},
			not: []error{fencelock.ErrReleased, fencelock.ErrExpired},
		},
		"max hold": {
			opts: []fencelock.Option{fencelock.MaxHold(time.Minute)},
			end:  func(*world, *fencelock.Client, *fencelock.Lease) {},
			is:   []error{fencelock.ErrLost, fencelock.ErrMaxHold},
			not:  []error{fencelock.ErrReleased, fencelock.ErrExpired, fencelock.ErrBroken},
		},
		"not renewed": {
			opts: []fencelock.Option{fencelock.NoRenewal(), fencelock.TTL(time.Minute)},
			end:  func(*world, *fencelock.Client, *fencelock.Lease) {},
			is:   []error{fencelock.ErrLost, fencelock.ErrExpired},
			not:  []error{fencelock.ErrReleased, fencelock.ErrMaxHold, fencelock.ErrBroken},
		},
		"closed": {
			end: func(_ *world, c *fencelock.Client, _ *fencelock.Lease) { c.Close() },
			is:  []error{fencelock.ErrLost, fencelock.ErrClosed},
			not: []error{fencelock.ErrReleased, fencelock.ErrExpired, fencelock.ErrBroken},
		},
	} {
		runInWorld(t, name, func(t *testing.T, w *world) {
			cl := w.client(nil)
			l := w.lock(cl, "k", c.opts...)
			c.end(w, cl, l)
			w.endsWith(l, c.is, c.not)
			if name != "released" {
				w.is(l.Release(bg), c.is...)
				w.is(l.Renew(bg), c.is...)
			}
		})
	}
}

// Nobody answers any more: the context ends by this process's clock alone, at the
// deadline, which is a hundredth and 2 ms before the store's own end.
func TestContextEndsAtTheDeadlineWithADeadNetwork(t *testing.T) {
	for name, fault := range faults {
		runInWorld(t, name, func(t *testing.T, w *world) {
			start := time.Now()
			l := w.lock(w.client(&fencelock.Options{TTL: 10 * time.Second}), "k")
			deadline := l.Deadline()
			steps.Same(t, "deadline after", deadline.Sub(start), 9898*time.Millisecond)
			w.store.meddle(fault, nil)
			<-l.Context().Done()
			if now := time.Now(); !now.Equal(deadline) {
				t.Errorf("the context ended %v after the deadline", now.Sub(deadline))
			}
			w.taken("k") // the store keeps it a little longer
			w.is(l.Err(), fencelock.ErrExpired)
		})
	}
}

// A lease that was handed on inside the process descends from the ctx of the one who
// got it, not from that of the one who gave it.
func TestHandedOnLeaseDescendsFromItsOwnCaller(t *testing.T) {
	type tag struct{}
	inWorld(t, func(w *world) {
		c := w.client(nil)
		ctx1, cancel1 := context.WithCancel(context.WithValue(bg, tag{}, 1))
		l1 := w.got(c.Lock(ctx1, "k"))
		other := w.lock(c, "other")
		ctx2 := context.WithValue(other.Context(), tag{}, 2)
		k := w.begin(func() (*fencelock.Lease, error) { return c.Lock(ctx2, "k", fencelock.Wait(time.Hour)) })
		w.release(l1)
		l2 := w.got(k.wait())
		cancel1()
		if l2.Context().Err() != nil || l2.Context().Value(tag{}) != 2 {
			t.Error("it descends from another call")
		}
		if fencelock.Held(l2.Context(), "other") != other || fencelock.Held(l2.Context(), "k") != l2 {
			t.Error("it carries other leases")
		}
		w.steps("enter", "enter")
		w.release(l2)
		w.release(other)
	})
}
