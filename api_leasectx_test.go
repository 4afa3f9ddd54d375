package fencelock_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testclient"
	"github.com/fencelock/fencelock/memlock"
)

// The context that can be waited for is made when it is first asked for. Whoever
// asks late must see what he would have seen from the start: the first end counts.
func TestContextBuiltLateKnowsTheFirstEnd(t *testing.T) {
	enough := errors.New("enough")
	for name, c := range map[string]struct {
		ends  []string // in this order
		cause error
	}{
		"released":                 {[]string{"release"}, fencelock.ErrReleased},
		"caller":                   {[]string{"caller"}, enough},
		"released, then caller":    {[]string{"release", "caller"}, fencelock.ErrReleased},
		"caller, then released":    {[]string{"caller", "release"}, enough},
		"asked, caller, released":  {[]string{"ask", "caller", "release"}, enough},
		"asked, released, caller":  {[]string{"ask", "release", "caller"}, fencelock.ErrReleased},
		"value, released, caller":  {[]string{"value", "release", "caller"}, fencelock.ErrReleased},
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
				case "value":
					x.Value("anything")
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
				switch i {
				case 0:
					child, end := context.WithTimeout(x, time.Hour)
					defer end()
					<-child.Done()
					causes[i] = context.Cause(child)
					return
				case 1:
					for x.Err() == nil {
					}
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

// A lease that nobody waits on must not leave anything with its caller's context,
// which may live as long as the program.
func TestReleasedLeaseLeavesNothingInItsCallersContext(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client(nil)
		ctx := &counted{Context: bg, done: make(chan struct{})}
		for range 10 {
			l := w.got(c.Lock(ctx, "k"))
			child, end := context.WithCancel(l.Context())
			defer end()
			w.release(l)
			<-child.Done()
		}
		ctx.mu.Lock()
		defer ctx.mu.Unlock()
		steps.Same(t, "callbacks are still registered", ctx.hooks, 0)
	})
}

// counted is a context that knows who waits for its end.
type counted struct {
	context.Context
	done  chan struct{}
	mu    sync.Mutex
	hooks int
}

func (c *counted) Done() <-chan struct{} { return c.done }

func (c *counted) AfterFunc(func()) func() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hooks++
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.hooks--
		return true
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
