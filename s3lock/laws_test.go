package s3lock_test

import (
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest"
	"github.com/fencelock/fencelock/s3lock"
)

// late is how much later than its lease a claim ends: two seconds are the grace, and one is the clock's.
const late = 4 * time.Second

func views(client s3lock.Client) drivertest.Opener {
	return func(t *testing.T) driver.Backend {
		b := s3lock.New(client, nil)
		t.Cleanup(func() { b.Close() })
		return b
	}
}

func TestLawsInVirtualTime(t *testing.T) {
	drivertest.Run(t, views(newBucket()), drivertest.InBubbles(), drivertest.ExpiryLag(late), drivertest.Polls(),
		drivertest.Topics("Grant", "Token", "Lease", "Expiry", "Leave", "Reserve", "Break", "Detach", "Named", "ReusedID",
			"Mark", "Linger", "Kind", "Wake", "Key", "Look", "Context", "Close", "Concurrent")) // Limit takes seconds
}

func TestAnswersAreThoseOfTheModelInVirtualTime(t *testing.T) { playModel(t, seeds(8)...) }

// playModel plays on a server whose clock is exact, as the model's is.
func playModel(t *testing.T, seeds ...uint64) {
	b := newBucket()
	b.exact = true
	drivertest.ModelInBubbles(t, func(t *testing.T) driver.Backend {
		v := s3lock.NewExact(b)
		t.Cleanup(func() { v.Close() })
		return v
	}, seeds...)
}

// seeds are the same each time: what they find stays found.
func seeds(n int) []uint64 {
	fixed := make([]uint64, n)
	for i := range fixed {
		fixed[i] = uint64(i)
	}
	return fixed
}
