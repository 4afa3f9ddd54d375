package fencelock

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// calls makes contexts of calls as a Client does.
func calls() *Client {
	c := &Client{}
	c.clock.start()
	c.life.start(&c.clock)
	return c
}

func TestCallEndsWithItsLimitItsCallerAndItsClient(t *testing.T) {
	cause := errors.New("enough")
	for name, x := range map[string]struct {
		end         func(c *Client, caller context.CancelCauseFunc)
		want, cause error
	}{
		"limit":  {func(*Client, context.CancelCauseFunc) { time.Sleep(time.Minute) }, context.DeadlineExceeded, context.DeadlineExceeded},
		"caller": {func(_ *Client, end context.CancelCauseFunc) { end(cause) }, context.Canceled, cause},
		"client": {func(c *Client, _ context.CancelCauseFunc) { c.life.acquiring.end() }, context.Canceled, context.Canceled},
	} {
		// Done is closed for those who wait before and after, and in contexts made from it,
		// early or late.
		for _, waits := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				c := calls()
				defer c.life.acquiring.end()
				ctx, end := context.WithCancelCause(context.Background())
				defer end(nil)
				call := c.life.acquiring.call(ctx, c.clock.now(), time.Minute)
				defer call.end()
				var child context.Context = call
				if waits {
					var cancel context.CancelFunc
					child, cancel = context.WithCancel(call)
					defer cancel()
				}
				if call.Err() != nil || child.Err() != nil || waits && context.Cause(call) != nil {
					t.Fatalf("%s: over before it began: %v, %v", name, call.Err(), child.Err())
				}
				x.end(c, end)
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

// The end of the Client finds each call that waits, and contexts made from calls need no
// goroutine each to watch them.
func TestEndOfTheClientReachesEveryCall(t *testing.T) {
	c := calls()
	var all sync.WaitGroup
	before := runtime.NumGoroutine()
	for range 100 {
		call := c.life.acquiring.call(context.Background(), c.clock.now(), time.Hour)
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
				call := c.life.acquiring.call(context.Background(), c.clock.now(), time.Hour)
				<-call.Done()
			}
		})
	}
	c.life.acquiring.end()
	all.Wait()
}

// No timer goes on while the machine sleeps; a call that begins after that has its own time.
func TestCallAfterTheMachineSlept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := calls()
		c.clock.asleep.Add(int64(time.Hour))
		call := c.life.acquiring.call(context.Background(), c.clock.now(), time.Second)
		began := time.Now()
		<-call.Done()
		if took := time.Since(began); took != time.Second {
			t.Errorf("a call of a second ended after %v", took)
		}
	})
}
