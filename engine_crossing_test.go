package fencelock_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/memlock"
)

// TestHandOffThatCrossesACancellationIsGivenBack: the lock is handed to a call whose
// context ends before the call returns. The caller is told that it has nothing, so what
// it was handed goes on to the next.
func TestHandOffThatCrossesACancellationIsGivenBack(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlock.Store) {
		c := client(t, newTap(s), &fencelock.Options{TTL: ttl})
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
			}
		}
		if crossed == 0 {
			t.Error("no hand-off crossed a cancellation: this tests nothing")
		}
		c.Close()
	})
}
