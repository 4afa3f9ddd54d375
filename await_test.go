package fencelock_test

import (
	"context"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/memlock"
)

// TestAwaitThatHangsIsAskedAgain: a push that got lost, in a driver that waits for it and
// for nothing else. The claim is renewed meanwhile, so it would wait for ever beside a lock
// that is its own.
func TestAwaitThatHangsIsAskedAgain(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlock.Store) {
		b, c := tapped(t, s)
		first := true
		b.await = func(ctx context.Context, _ driver.Ticket, do func() (driver.Ticket, error)) (driver.Ticket, error) {
			if first {
				first = false
				<-ctx.Done()
				return driver.Ticket{}, ctx.Err()
			}
			return do()
		}
		other := plain(t, s)
		held := mustLock(t, other, "k")
		got := make(chan *fencelock.Lease, 1)
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
			defer cancel()
			l, err := c.Lock(ctx, "k")
			if err != nil {
				t.Errorf("Lock: %v", err)
			}
			got <- l
		}()
		after(time.Second)
		mustRelease(t, held)
		begin := time.Now()
		l := <-got
		if waited := time.Since(begin); waited > 2*time.Second+ttl/3 {
			t.Errorf("granted %v after the lock was free; want it within two seconds and a third of a lease", waited)
		}
		if l != nil {
			mustRelease(t, l)
		}
	})
}
