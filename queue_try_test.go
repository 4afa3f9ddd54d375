package fencelock_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/internal/testclient"
	"github.com/fencelock/fencelock/memlock"
)

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
