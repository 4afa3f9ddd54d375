package fencelock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testclient"
	"github.com/fencelock/fencelock/memlock"
)

// The end of the caller's ctx ends the Context of the lease, not the lease.
func TestLeaseOutlivesItsCallersContext(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client(&fencelock.Options{TTL: 3 * time.Second})
		cause := errors.New("enough")
		ctx, cancel := context.WithCancelCause(bg)
		l := w.got(c.Lock(ctx, "k"))
		cancel(cause)
		w.is(l.Context().Err(), context.Canceled)
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

func TestCauseOfTheContextSaysWhyTheLeaseEnded(t *testing.T) {
	type end = func(w *world, c *fencelock.Client, l *fencelock.Lease)
	byItself := func(*world, *fencelock.Client, *fencelock.Lease) {}
	for name, c := range map[string]struct {
		cause error
		end   end
		opts  []fencelock.Option
	}{
		"released": {fencelock.ErrReleased, func(_ *world, _ *fencelock.Client, l *fencelock.Lease) { l.Release(bg) }, nil},
		"expired":  {fencelock.ErrExpired, func(w *world, _ *fencelock.Client, _ *fencelock.Lease) { w.store.meddle(down, nil) }, nil},
		"broken": {fencelock.ErrBroken, func(_ *world, c *fencelock.Client, l *fencelock.Lease) {
			c.Break(bg, "k", l.Token(), fencelock.Break{Reason: "deploy"})
		}, nil},
		"lost by the store": {fencelock.ErrBroken, func(w *world, _ *fencelock.Client, _ *fencelock.Lease) { w.store.Flush() }, nil},
		"max hold":          {fencelock.ErrMaxHold, byItself, []fencelock.Option{fencelock.MaxHold(time.Minute)}},
		"not renewed":       {fencelock.ErrExpired, byItself, []fencelock.Option{fencelock.NoRenewal(), fencelock.TTL(time.Minute)}},
		"closed":            {fencelock.ErrClosed, func(_ *world, c *fencelock.Client, _ *fencelock.Lease) { c.Close() }, nil},
	} {
		runInWorld(t, name, func(t *testing.T, w *world) {
			cl := w.client(nil)
			l := w.lock(cl, "k", c.opts...)
			c.end(w, cl, l)
			<-l.Context().Done()
			w.is(l.Context().Err(), context.Canceled)
			errs := []error{context.Cause(l.Context()), l.Err()}
			if c.cause != fencelock.ErrReleased {
				errs = append(errs, l.Release(bg), l.Renew(bg))
			}
			for _, err := range errs {
				for _, why := range []error{
					fencelock.ErrReleased, fencelock.ErrExpired, fencelock.ErrMaxHold, fencelock.ErrBroken, fencelock.ErrClosed,
					fencelock.ErrStalled, fencelock.ErrNotAcquired, fencelock.ErrUnavailable, fencelock.ErrInvalid,
				} {
					steps.Same(t, fmt.Sprintf("%v matches %v", err, why), errors.Is(err, why), why == c.cause)
				}
				steps.Same(t, fmt.Sprintf("%v is a loss", err), errors.Is(err, fencelock.ErrLost), c.cause != fencelock.ErrReleased)
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
			steps.Same(t, "the context ended after the deadline by", time.Since(deadline), 0)
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

// The context that can be waited for is made when it is first asked for. Whoever
// asks late must see what he would have seen from the start: the first end counts.
func TestContextBuiltLateKnowsTheFirstEnd(t *testing.T) {
	enough := errors.New("enough")
	for name, c := range map[string]struct {
		ends  []string // in this order
		cause error
	}{
		"released, then caller":    {[]string{"release", "caller"}, fencelock.ErrReleased},
		"caller, then released":    {[]string{"caller", "release"}, enough},
		"asked, caller, released":  {[]string{"ask", "caller", "release"}, enough},
		"asked, released, caller":  {[]string{"ask", "release", "caller"}, fencelock.ErrReleased},
		"caller, looked, released": {[]string{"caller", "look", "release"}, enough},
	} {
		runInWorld(t, name, func(t *testing.T, w *world) {
			client := w.client(nil)
			ctx, cancel := context.WithCancelCause(bg)
			defer cancel(nil)
			l := w.got(client.Lock(ctx, "k"))
			x := l.Context()
			if x.Err() != nil {
				t.Fatalf("ended at once: %v", x.Err())
			}
			released := false
			for _, end := range c.ends {
				switch end {
				case "release":
					w.release(l)
					released = true
				case "caller":
					cancel(enough)
				case "ask":
					x.Done()
				case "look":
					w.is(x.Err(), context.Canceled)
				}
			}
			w.is(x.Err(), context.Canceled)
			select {
			case <-x.Done():
			default:
				t.Error("Err is not nil, but Done is not closed")
			}
			w.is(context.Cause(x), c.cause)
			child, end := context.WithCancel(x)
			defer end()
			w.is(context.Cause(child), c.cause)
			if !released {
				w.release(l)
			}
		})
	}
}

// Everybody who looks agrees, whoever comes first.
func TestContextIsOneForAllWhoAsk(t *testing.T) {
	c := testclient.New(t, memlock.New(), nil)
	defer c.Close()
	for range 2000 {
		ctx, cancel := context.WithCancelCause(bg)
		l, err := c.Lock(ctx, "k")
		must(t, err)
		x := l.Context()
		causes := make([]error, 4)
		var wg sync.WaitGroup
		for i := range causes {
			wg.Go(func() {
				for i == 1 && x.Err() == nil {
				}
				<-x.Done()
				causes[i] = context.Cause(x)
			})
		}
		wg.Go(func() { cancel(errors.New("enough")) })
		must(t, l.Release(bg))
		wg.Wait()
		for _, cause := range causes {
			if cause == nil || cause != causes[0] {
				t.Fatalf("they saw different causes: %v", causes)
			}
		}
	}
}

// Seven allocations for a lock and its release, one of them the store's. The race detector
// keeps crypto/rand.Text from using the stack: one more.
func TestFreeLockAllocatesLittle(t *testing.T) {
	c := testclient.New(t, memlock.New(), nil)
	defer c.Close()
	allocs := testing.AllocsPerRun(1000, func() {
		l, err := c.Lock(bg, "k")
		must(t, err)
		must(t, l.Release(bg))
	})
	if allocs > 8 {
		t.Errorf("a lock and its release make %v allocations", allocs)
	}
}
