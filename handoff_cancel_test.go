package fencelock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/memlock"
)

// TestHandOffThatCrossesACancellationIsGivenBack: the lock is handed to a call whose
// context ends before the call returns. The caller gets an error, so what
// it was handed goes on to the next.
func TestHandOffThatCrossesACancellationIsGivenBack(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlock.Store) {
		c := plain(t, s)
		crossed := 0
		for range 300 {
			l, err := c.TryLock(context.Background(), "k")
			if err != nil {
				t.Fatalf("nobody holds it, and it is not free: %v", err)
			}
			ctx, cancel := context.WithCancel(context.Background())
			got := make(chan *fencelock.Lease)
			go func() {
				l, _ := c.Lock(ctx, "k")
				got <- l
			}()
			synctest.Wait()
			mustRelease(t, l)
			cancel()
			if l := <-got; l != nil {
				mustRelease(t, l)
			} else {
				crossed++
				synctest.Wait() // it is given back behind
			}
		}
		if crossed == 0 {
			t.Error("no hand-off crossed a cancellation: this tests nothing")
		}
	})
}

// TestHandOffThatCrossesACancellationIsReleasedInTheBackground: giving it back is not the caller's
// business, who has ended the call, and the store may take its time.
func TestHandOffThatCrossesACancellationIsReleasedInTheBackground(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlock.Store) {
		k := newTap(s)
		k.leave = func(_ context.Context, _ driver.Ticket, _ driver.Exit, do func() error) error {
			after(100 * time.Millisecond)
			return do()
		}
		handedOn := 0
		c := client(t, k, &fencelock.Options{TTL: ttl, HandOff: 64, Hooks: fencelock.Hooks{Acquired: func(e fencelock.Event) {
			if e.Handoff {
				handedOn++
			}
		}}})
		crossed := 0
		for i := range 300 {
			l := mustLock(t, c, "k")
			ctx, cancel := context.WithCancel(context.Background())
			var ended time.Time
			got := make(chan *fencelock.Lease)
			before := handedOn
			go func() {
				l, _ := c.Lock(ctx, "k")
				if l == nil {
					if late := time.Since(ended); late > 0 {
						t.Errorf("a Lock returned %v after the end of its context", late)
					}
				}
				got <- l
			}()
			synctest.Wait()
			ended = time.Now()
			if i%2 == 0 {
				go l.Release(context.Background())
				go cancel()
			} else {
				// The hand-off comes first, and its goroutine has not run yet: only the race
				// detector has the scheduler find that order by itself.
				go func() {
					_ = l.Release(context.Background())
					cancel()
				}()
			}
			if l := <-got; l != nil {
				mustRelease(t, l)
			} else if synctest.Wait(); handedOn > before {
				crossed++
			}
			after(time.Second) // the Leave has come back
		}
		if crossed == 0 {
			t.Error("no hand-off crossed a cancellation: this tests nothing")
		}
	})
}
