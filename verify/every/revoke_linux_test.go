package every

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testclient"
)

// An operator gives notice through another Client, and goes. The holder hears of it, and releases in
// time, or its grant ends with the notice and with the reason.
func TestHolderIsGivenNotice(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store) {
		key := newKey(t)
		a := s.near(t)
		next := testclient.New(t, s.open(t, s.addrs("127.0.0.1")), nil) // its requests have ten seconds
		t.Cleanup(func() { next.Close() })
		notice := func(lease *fencelock.Lease, d time.Duration) {
			operator := testclient.New(t, s.open(t, s.addrs("127.0.0.1")), nil)
			steps.OK(t, operator.Break(t.Context(), key, lease.Token(), fencelock.Break{Reason: "release 7", Notice: d}))
			steps.OK(t, operator.Close())
			select {
			case <-lease.Revoked():
			case <-time.After(2*ttl + s.lag):
				t.Fatal("the holder has not heard of its notice")
			}
		}
		lease := lock(t, a, key)
		notice(lease, time.Minute)
		if reason, end := lease.Revocation(); reason != "release 7" || time.Until(end) > time.Minute+time.Second {
			t.Errorf("notice for %q until %v", reason, end)
		}
		steps.OK(t, lease.Err())
		// A busy store may answer too late; the claim then leaves in the background.
		if err := lease.Release(t.Context()); err != nil && !errors.Is(err, fencelock.ErrUnavailable) {
			t.Errorf("Release in time: %v", err)
		}

		lease = lock(t, a, key)
		notice(lease, 4*ttl)
		select {
		case <-lease.Context().Done():
		case <-time.After(8*ttl + s.lag):
			t.Fatal("the lease goes on after its notice")
		}
		if err := lease.Err(); !errors.Is(err, fencelock.ErrBroken) || !strings.Contains(err.Error(), "release 7") {
			t.Errorf("the lease ended with %v", err)
		}
		release(t, "the next", lock(t, next, key))
	})
}
