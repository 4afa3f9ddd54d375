package fencelock_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/internal/testclient"
	"github.com/fencelock/fencelock/memlock"
)

// TestEnterThatFollowsALeave: others in line hear of a Leave sooner if no Enter of ours is before
// it. Where nobody else is in line, both go out at once, which makes a hot key quick.
func TestEnterThatFollowsALeave(t *testing.T) {
	for name, contended := range map[string]bool{"others are in line": true, "nobody else is": false} {
		runInBubble(t, name, func(t *testing.T, s *memlock.Store) {
			b := newTap(s)
			here, there := client(t, b, &fencelock.Options{TTL: ttl, HandOff: 2}), plain(t, s)
			before, during := 0, -1
			b.set(func() {
				b.leave = func(ctx context.Context, _ driver.Ticket, _ driver.Exit, do func() error) error {
					if during < 0 {
						synctest.Wait() // the store takes its time
						during = len(b.entered()) - before
					}
					return do()
				}
			})
			holder, want := here, 1
			if contended {
				holder, want = there, 0
			}
			first := mustLock(t, holder, "k")
			var group sync.WaitGroup
			for range 3 { // the last has to ask the store again
				group.Go(func() { mustRelease(t, mustLock(t, here, "k")) })
				synctest.Wait()
			}
			before = len(b.entered())
			mustRelease(t, first)
			group.Wait()
			steps.Same(t, "Enters were sent before the Leave had arrived", during, want)
		})
	}
}

// TestHangingLeaveDelaysTheNextGoroutineBriefly: the next goroutine of the local queue waits for it, but
// no longer than Release does.
func TestHangingLeaveDelaysTheNextGoroutineBriefly(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlock.Store) {
		b := newTap(s)
		here, there := client(t, b, &fencelock.Options{TTL: ttl, HandOff: 2}), plain(t, s)
		hung := false
		b.set(func() {
			b.leave = func(ctx context.Context, _ driver.Ticket, _ driver.Exit, do func() error) error {
				if hung {
					return do()
				}
				hung = true
				<-ctx.Done()
				return ctx.Err()
			}
		})
		first := mustLock(t, there, "k")
		began := time.Now()
		var group sync.WaitGroup
		for range 3 {
			group.Go(func() {
				l := mustLock(t, here, "k")
				tookAtMost(t, began, ttl)
				_ = l.Release(context.Background()) // the one that hangs is done behind
			})
			synctest.Wait()
		}
		mustRelease(t, first)
		group.Wait()
		if !hung {
			t.Error("no Leave hung; this test shows nothing")
		}
	})
}

func TestHandOffEndsSoThatOthersGetTheirTurn(t *testing.T) {
	// Twenty goroutines here, one process there that came after the first of them. It
	// waits for at most HandOff grants.
	bubble(t, func(t *testing.T, s *memlock.Store) {
		here := client(t, newTap(s), &fencelock.Options{TTL: ttl, HandOff: 4})
		there := plain(t, s)
		first := mustLock(t, here, "k")
		var mu sync.Mutex
		var order []string
		var wg sync.WaitGroup
		run := func(name string, c *fencelock.Client) {
			wg.Go(func() {
				l := mustLock(t, c, "k")
				mu.Lock()
				order = append(order, name)
				mu.Unlock()
				mustRelease(t, l)
			})
			synctest.Wait()
		}
		for range 10 {
			run("here", here)
		}
		run("there", there)
		for range 10 {
			run("here", here)
		}
		mustRelease(t, first)
		wg.Wait()
		for i, name := range order {
			if name == "there" && i > 3 {
				t.Errorf("the other process was served after %d grants here; HandOff is 4", i+1)
			}
		}
	})
}

func TestHandOffEndsWithTheAgeOfOneLease(t *testing.T) {
	// Each goroutine holds for 4 s, which is less than half of a lease, so the claim
	// stays healthy: only its age ends the chain.
	bubble(t, func(t *testing.T, s *memlock.Store) {
		here := plain(t, s)
		there := plain(t, s)
		begin := time.Now()
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				l := mustLock(t, here, "k")
				after(4 * time.Second)
				mustRelease(t, l)
			})
			synctest.Wait()
		}
		l := mustLock(t, there, "k")
		tookAtMost(t, begin, ttl+4*time.Second)
		mustRelease(t, l)
		wg.Wait()
	})
}

func TestUnhealthyLeaseIsNotHandedOn(t *testing.T) {
	// Renewals fail, and more than half of the lease has passed: a goroutine that got
	// this claim would begin with a lease that is about to end.
	bubble(t, func(t *testing.T, s *memlock.Store) {
		b, c := tapped(t, s)
		b.renew = func(ctx context.Context, ts []driver.Ticket, do func() []error) []error { return all(ts, errCut) }
		l := mustLock(t, c, "k")
		got := lockLater(t, c)
		after(6 * time.Second)
		mustRelease(t, l)
		l2 := <-got
		if left := time.Until(l2.Deadline()); left < ttl*9/10 {
			t.Errorf("the next one began with %v left", left)
		}
		steps.Same(t, "Enters", len(b.entered()), 2)
		mustRelease(t, l2)
	})
}

func TestFrontThatGivesUpKeepsTheClaimInLine(t *testing.T) {
	// The front of our queue gives up. The place in the store's line belongs to the
	// process: the next goroutine here is served before the process that came later.
	bubble(t, func(t *testing.T, s *memlock.Store) {
		holder := plain(t, s)
		l := mustLock(t, holder, "k")
		b, here := tapped(t, s)
		there := plain(t, s)
		ctx, cancel := context.WithCancel(context.Background())
		gaveUp := make(chan error, 1)
		go func() { _, err := here.Lock(ctx, "k"); gaveUp <- err }()
		synctest.Wait()
		a := lockLater(t, here)
		synctest.Wait()
		z := lockLater(t, there)
		synctest.Wait()
		cancel()
		if err := <-gaveUp; !errors.Is(err, fencelock.ErrNotAcquired) || !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		mustRelease(t, l)
		la := <-a
		synctest.Wait()
		nothing(t, z, "two holders")
		steps.Same(t, "Enters; the place was given up", len(b.entered()), 1)
		mustRelease(t, la)
		mustRelease(t, <-z)
	})
}

func TestLastWaiterThatGivesUpLeavesTheLine(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlock.Store) {
		holder := plain(t, s)
		l := mustLock(t, holder, "k")
		here := plain(t, s)
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() {
				_, err := here.Lock(context.Background(), "k", fencelock.Wait(time.Duration(10-i)*time.Second))
				var h *fencelock.HeldError
				if !errors.As(err, &h) || h.Owner == "" {
					t.Errorf("%v", err)
				}
			})
			synctest.Wait()
		}
		wg.Wait()
		if line, _ := s.Line(context.Background(), "k"); len(line.Claims) != 1 {
			t.Errorf("a ghost is in line: %+v", line.Claims)
		}
		mustRelease(t, l)
	})
}

func TestLossWakesTheLocalQueue(t *testing.T) {
	// The holder never comes back to release. Its lease ends, and the next goroutine of
	// the same process gets the key.
	bubble(t, func(t *testing.T, s *memlock.Store) {
		b, c := tapped(t, s)
		b.renew = func(ctx context.Context, ts []driver.Ticket, do func() []error) []error {
			if len(b.entered()) == 1 {
				return all(ts, errCut)
			}
			return do()
		}
		l := mustLock(t, c, "k")
		begin := time.Now()
		l2 := mustLock(t, c, "k")
		if got := time.Since(begin); got < ttl-ttl/50 || got > ttl+time.Second {
			t.Errorf("granted %v after a lease of %v that nobody renewed", got, ttl)
		}
		if l.Err() == nil || l2.Token() <= l.Token() {
			t.Errorf("first: %v, tokens %v then %v", l.Err(), l.Token(), l2.Token())
		}
		mustRelease(t, l2)
		after(ttl)
	})
}

func TestTryWaitsForTheFrontsFirstAnswer(t *testing.T) {
	// A try meets a call whose Enter has no answer yet. If that call fails, nobody has
	// the lock: a refusal would have been a lie.
	bubble(t, func(t *testing.T, s *memlock.Store) {
		b, c := tapped(t, s)
		b.enter = func(ctx context.Context, c driver.Claim, do func() (driver.Ticket, error)) (driver.Ticket, error) {
			if len(b.entered()) == 1 {
				<-ctx.Done()
				return driver.Ticket{}, ctx.Err()
			}
			return do()
		}
		ctx, cancel := context.WithCancel(context.Background())
		go c.Lock(ctx, "k")
		synctest.Wait()
		got := make(chan *fencelock.Lease, 1)
		go func() {
			l, err := c.TryLock(context.Background(), "k")
			ok(t, err)
			got <- l
		}()
		synctest.Wait()
		cancel()
		if l := <-got; l != nil {
			mustRelease(t, l)
		}
	})
}

func TestStrictOrderWithoutHandOff(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlock.Store) {
		a := client(t, newTap(s), &fencelock.Options{TTL: ttl, HandOff: 1})
		b := client(t, newTap(s), &fencelock.Options{TTL: ttl, HandOff: 1})
		first := mustLock(t, a, "k")
		var mu sync.Mutex
		var order []int
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				c := a
				if i%3 == 0 {
					c = b
				}
				l := mustLock(t, c, "k")
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				mustRelease(t, l)
			})
			synctest.Wait()
		}
		mustRelease(t, first)
		wg.Wait()
		for i, n := range order {
			if i != n {
				t.Fatalf("served in the order %v", order)
			}
		}
	})
}

//verify:fault The API, on all stores | ten thousand waiters on a key, all cancelled
func TestTenThousandWaitersCancelled(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlock.Store) {
		b, c := tapped(t, s)
		l := mustLock(t, c, "k")
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		for range 10000 {
			wg.Go(func() {
				steps.Is(t, "Lock", errOf(c.Lock(ctx, "k")), context.Canceled)
			})
		}
		synctest.Wait()
		cancel()
		wg.Wait()
		mustRelease(t, l)
		steps.Same(t, "Enters", len(b.entered()), 1)
	})
}

func TestHotKeyServesEverybodyAlike(t *testing.T) {
	// Real time. Jain's index is 1 if all shares are equal, and 1/64 if one goroutine has all.
	// Nobody is served before all are in the queue: a goroutine alone would rightly have all.
	const n, total = 64, 64 * 200
	var queued atomic.Int32
	everybody := make(chan struct{})
	c := testclient.New(t, memlock.New(), &fencelock.Options{OnEvent: testclient.On(fencelock.EventWaiting, func(fencelock.Event) {
		if queued.Add(1) == n {
			close(everybody)
		}
	})})
	defer c.Close()
	first := mustLock(t, c, "k")
	var counts [n]float64
	var wg sync.WaitGroup
	var last fence.Token
	done := 0
	for i := range n {
		wg.Go(func() {
			for {
				l, err := c.Lock(context.Background(), "k")
				if err != nil {
					t.Error(err)
					return
				}
				if l.Token() <= last {
					t.Errorf("token %v after %v", l.Token(), last)
				}
				last = l.Token()
				stop := done >= total
				if !stop {
					done++
					counts[i]++
				}
				l.Release(context.Background())
				if stop {
					return
				}
			}
		})
	}
	<-everybody
	mustRelease(t, first)
	wg.Wait()
	var sum, squares float64
	for _, x := range counts {
		sum += x
		squares += x * x
	}
	if jain := sum * sum / (n * squares); jain < 0.95 {
		t.Errorf("Jain's index is %.3f; want at least 0.95: %v", jain, counts)
	}
}
