package callctx_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/callctx"
	"github.com/fencelock/fencelock/internal/clock"
)

// newLife returns a Lifetime and its clock.
func newLife() (*callctx.Lifetime, *clock.Clock) {
	c := &clock.Clock{}
	c.Start()
	return callctx.New(c), c
}

func TestCallEndsWithItsLimitItsCallerAndItsClient(t *testing.T) {
	cause := errors.New("enough")
	for name, x := range map[string]struct {
		end         func(life *callctx.Lifetime, caller context.CancelCauseFunc)
		want, cause error
	}{
		"limit":  {func(*callctx.Lifetime, context.CancelCauseFunc) { time.Sleep(time.Minute) }, context.DeadlineExceeded, context.DeadlineExceeded},
		"caller": {func(_ *callctx.Lifetime, end context.CancelCauseFunc) { end(cause) }, context.Canceled, cause},
		"client": {func(l *callctx.Lifetime, _ context.CancelCauseFunc) { l.End() }, context.Canceled, context.Canceled},
	} {
		// Done is closed for those who wait before and after, and in contexts made from it,
		// early or late.
		for _, waits := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				life, c := newLife()
				defer life.End()
				ctx, end := context.WithCancelCause(context.Background())
				defer end(nil)
				call := life.Call(ctx, c.Now(), time.Minute)
				defer call.End()
				var child context.Context = call
				if waits {
					var cancel context.CancelFunc
					child, cancel = context.WithCancel(call)
					defer cancel()
				}
				if call.Err() != nil || child.Err() != nil || waits && context.Cause(call) != nil {
					t.Fatalf("%s: over before it began: %v, %v", name, call.Err(), child.Err())
				}
				x.end(life, end)
				synctest.Wait()
				if !waits {
					var cancel context.CancelFunc
					child, cancel = context.WithCancel(call)
					defer cancel()
				}
				for _, y := range []context.Context{call, child} {
					select {
					case <-y.Done():
					default:
						t.Fatalf("%s, waited for: %v: not over", name, waits)
					}
					if y.Err() != x.want || context.Cause(y) != x.cause {
						t.Errorf("%s, waited for: %v: %v, %v; want %v, %v",
							name, waits, y.Err(), context.Cause(y), x.want, x.cause)
					}
				}
			})
		}
	}
}

// The end of the Client finds each call that waits, without a goroutine for each.
func TestEndOfTheClientReachesEveryCall(t *testing.T) {
	life, c := newLife()
	var all sync.WaitGroup
	before := runtime.NumGoroutine()
	for range 100 {
		call := life.Call(context.Background(), c.Now(), time.Hour)
		child, cancel := context.WithCancel(call)
		defer cancel()
		all.Go(func() { <-child.Done() })
	}
	if n := runtime.NumGoroutine() - before; n > 110 {
		t.Errorf("%d goroutines for 100 who wait", n)
	}
	// Some come while it ends.
	for range 4 {
		all.Go(func() {
			for range 200 {
				call := life.Call(context.Background(), c.Now(), time.Hour)
				<-call.Done()
			}
		})
	}
	life.End()
	all.Wait()
}

// No timer goes on while the machine sleeps; a call that begins after that has its own time.
func TestCallAfterTheMachineSlept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		life, c := newLife()
		c.Skip(time.Hour)
		call := life.Call(context.Background(), c.Now(), time.Second)
		began := time.Now()
		<-call.Done()
		steps.Same(t, "a call of a second ended after", time.Since(began), time.Second)
	})
}
