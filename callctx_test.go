package fencelock

import (
	"context"
	"errors"
	"runtime"
	"slices"
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
		detached bool
		end      func(c *Client, caller context.CancelCauseFunc)
		want     error
		cause    error
	}{
		"limit":                   {false, func(*Client, context.CancelCauseFunc) {}, context.DeadlineExceeded, context.DeadlineExceeded},
		"limit of a detached one": {true, func(*Client, context.CancelCauseFunc) {}, context.DeadlineExceeded, context.DeadlineExceeded},
		"caller":                  {false, func(_ *Client, end context.CancelCauseFunc) { end(cause) }, context.Canceled, cause},
		"caller of a detached one": {true, func(_ *Client, end context.CancelCauseFunc) { end(cause) },
			context.DeadlineExceeded, context.DeadlineExceeded},
		"client":                   {false, func(c *Client, _ context.CancelCauseFunc) { c.life.acquiring.end() }, context.Canceled, context.Canceled},
		"client of a detached one": {true, func(c *Client, _ context.CancelCauseFunc) { c.life.leaving.end() }, context.Canceled, context.Canceled},
	} {
		// Done is closed for those who wait before and after, and in contexts made from it,
		// early or late.
		for _, waits := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				c := calls()
				defer c.life.acquiring.end()
				defer c.life.leaving.end()
				ctx, end := context.WithCancelCause(context.Background())
				defer end(nil)
				call := c.life.acquiring.call(ctx, c.clock.now(), time.Minute)
				if x.detached {
					call = c.life.leaving.detachedCall(ctx, c.clock.now(), time.Minute)
				}
				defer call.end()
				var child context.Context = call
				if waits {
					var cancel context.CancelFunc
					child, cancel = context.WithCancel(call)
					defer cancel()
				}
				if call.Err() != nil || child.Err() != nil || context.Cause(call) != nil {
					t.Fatalf("%s: over before it began: %v, %v, %v", name, call.Err(), child.Err(), context.Cause(call))
				}
				x.end(c, end)
				synctest.Wait()
				time.Sleep(time.Minute)
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
					if y.Err() != x.want {
						t.Errorf("%s, waited for: %v: %v; want %v", name, waits, y.Err(), x.want)
					}
					if got := context.Cause(y); got != x.cause {
						t.Errorf("%s, waited for: %v: cause %v; want %v", name, waits, got, x.cause)
					}
				}
			})
		}
	}
}

func TestEndedCallFreesItsResources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := calls()
		call := c.life.acquiring.call(context.Background(), c.clock.now(), time.Hour)
		child, cancel := context.WithTimeout(call, 2*time.Hour)
		defer cancel()
		called := 0
		stop := call.AfterFunc(func() { t.Error("called after stop") })
		call.AfterFunc(func() { called++ })
		if !stop() || stop() {
			t.Error("stop reports whether it was in time")
		}
		if d, _ := child.Deadline(); time.Until(d) != time.Hour {
			t.Errorf("what is made from a call ends in %v; want an hour", time.Until(d))
		}
		call.end()
		synctest.Wait()
		if called != 1 || child.Err() == nil || call.Err() == nil {
			t.Errorf("called %d times, child %v, call %v", called, child.Err(), call.Err())
		}
		call.AfterFunc(func() { called++ })
		synctest.Wait()
		if called != 2 || c.life.acquiring.calls != nil {
			t.Errorf("called %d times; calls are left: %v", called, c.life.acquiring.calls != nil)
		}
	}) // which finds goroutines and timers that are left
}

// The end of the Client finds each call that waits, and contexts made from calls need no
// goroutine each to watch them.
func TestEndOfTheClientReachesEveryCall(t *testing.T) {
	c := calls()
	var all sync.WaitGroup
	before := runtime.NumGoroutine()
	var over []*callCtx
	for range 100 {
		call := c.life.acquiring.call(context.Background(), c.clock.now(), time.Hour)
		child, cancel := context.WithCancel(call)
		defer cancel()
		all.Go(func() { <-child.Done() })
		over = append(over, c.life.acquiring.call(context.Background(), c.clock.now(), time.Hour))
		over[len(over)-1].Done()
	}
	if n := runtime.NumGoroutine() - before; n > 110 {
		t.Errorf("%d goroutines for 100 who wait", n)
	}
	for _, call := range over { // from between the others
		call.end()
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
	if c.life.acquiring.calls != nil {
		t.Error("calls are left in the list")
	}
}

// The timer does not go on while the machine sleeps; a call that begins after that has its
// own time.
func TestCallAfterTheMachineSlept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := calls()
		answered := c.life.acquiring.call(context.Background(), c.clock.now(), 10*time.Second)
		answered.Done()
		answered.end()
		c.clock.asleep.Add(int64(time.Hour))
		call := c.life.acquiring.call(context.Background(), c.clock.now(), time.Second)
		began := time.Now()
		<-call.Done()
		if took := time.Since(began); took != time.Second {
			t.Errorf("a call of a second ended after %v", took)
		}
	})
}

// One timer serves all calls: it is set for the first that may end, whatever came in
// between, and left alone by calls that are answered in time.
func TestCallsEndEachAtItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := calls()
		began := time.Now()
		start := func(d time.Duration) *callCtx {
			call := c.life.acquiring.call(context.Background(), c.clock.now(), d)
			call.Done()
			return call
		}
		answered := start(10 * time.Second)
		firesAt := func() int64 {
			c.life.acquiring.mu.Lock()
			defer c.life.acquiring.mu.Unlock()
			return c.life.acquiring.firesAt
		}
		set := firesAt()
		answered.end()
		late, early, same := start(time.Minute), start(20*time.Second), start(20*time.Second)
		start(15 * time.Second).end()
		if now := firesAt(); now != set {
			t.Errorf("the timer was set again for calls that end later: %d, %d", now, set)
		}
		<-c.life.leaving.detachedCall(context.Background(), c.clock.now(), 12*time.Second).Done() // of another timer; this one fired spuriously
		short := start(time.Second)
		for _, x := range []struct {
			next *callCtx
			at   time.Duration
			over []*callCtx
		}{
			{short, 13 * time.Second, []*callCtx{short}},
			{early, 20 * time.Second, []*callCtx{short, early, same}},
			{late, time.Minute, []*callCtx{short, early, same, late}},
		} {
			<-x.next.Done()
			synctest.Wait()
			if at := time.Since(began); at != x.at {
				t.Errorf("the next one ended after %v; want %v", at, x.at)
			}
			for name, call := range map[string]*callCtx{"short": short, "early": early, "same": same, "late": late} {
				var want error
				if slices.Contains(x.over, call) {
					want = context.DeadlineExceeded
				}
				select {
				case <-call.Done():
				default:
					if want != nil {
						t.Errorf("%v: Done of %s is open", x.at, name)
					}
				}
				if err := call.Err(); err != want {
					t.Errorf("%v: %s: %v; want %v", x.at, name, err, want)
				}
			}
		}
		if now := firesAt(); now != 0 || c.life.acquiring.calls != nil {
			t.Errorf("when all is over the timer is set for %d, calls are left: %v", now, c.life.acquiring.calls != nil)
		}
	})
}
