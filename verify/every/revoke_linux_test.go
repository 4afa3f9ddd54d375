package every

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testclient"
)

// A holder that wants to know is asked for its lock, through another Client, and releases it in
// time. One that does not look is broken when patience is over, with the reason.
func TestHolderIsAskedFirst(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store) {
		key := newKey(t)
		a := s.near(t)
		b := testclient.New(t, s.open(t, s.addrs("127.0.0.1")), nil) // its requests have ten seconds
		t.Cleanup(func() { b.Close() })
		lease := lock(t, a, key)
		asked := lease.Revoked()
		done := make(chan error, 1)
		go func() {
			broken, err := b.Revoke(context.Background(), key, lease.Token(), "release 7", time.Minute, 0)
			if broken {
				err = errors.New("it was broken")
			}
			done <- err
		}()
		select {
		case <-asked:
		case err := <-done:
			t.Fatalf("Revoke has returned before the holder was asked: %v", err)
		case <-time.After(20 * time.Second):
			t.Fatal("the holder was not asked")
		}
		if by := lease.Revocation(); by.Note != "release 7" || by.Owner == "" {
			t.Errorf("asked by %+v", by)
		}
		steps.OK(t, lease.Err())
		// A busy store may answer too late; the claim then leaves in the background.
		if err := lease.Release(t.Context()); err != nil && !errors.Is(err, fencelock.ErrUnavailable) {
			t.Errorf("Release by the holder that was asked: %v", err)
		}
		steps.OK(t, <-done)
		for line, err := range b.Lines(t.Context(), "") {
			if err != nil || strings.HasPrefix(line.Key, "fencelock/") {
				t.Errorf("%q is listed, %v", line.Key, err)
			}
		}

		lease = lock(t, a, key)
		broken, err := b.Revoke(t.Context(), key, lease.Token(), "enough", ttl/2, 0)
		if err != nil || !broken {
			t.Errorf("Revoke of a holder that does not look: %v, %v", broken, err)
		}
		select {
		case <-lease.Context().Done():
		case <-time.After(2*ttl + s.lag):
			t.Fatal("the holder was not told")
		}
		if err := lease.Err(); !errors.Is(err, fencelock.ErrBroken) || !strings.Contains(err.Error(), "enough") {
			t.Errorf("the holder was told %v", err)
		}
		release(t, "the next", lock(t, b, key))
	})
}
