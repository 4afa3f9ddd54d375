package fencelock_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/memlock"
)

func TestMoreLeasesThanGoOutAtOnceAreRenewed(t *testing.T) {
	// All are due in the same moment, and more than may be on their way together. A
	// tick that takes up again what it has just put off never ends, and nothing else
	// of the Client goes on.
	bubbleFor(t, 2*time.Minute, func(t *testing.T, s *memlock.Store) {
		b, c := tapped(t, s)
		b.renew = func(ctx context.Context, ts []driver.Ticket, do func() []error) []error {
			after(50 * time.Millisecond)
			return do()
		}
		var leases []*fencelock.Lease
		for i := range 40000 {
			leases = append(leases, mustLock(t, c, fmt.Sprint(i)))
		}
		after(3 * ttl)
		for _, l := range leases {
			if err := l.Err(); err != nil {
				t.Fatalf("%s: %v", l.Key(), err)
			}
		}
	})
}
