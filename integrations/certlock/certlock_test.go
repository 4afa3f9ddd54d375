package certlock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/certmagic"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/integrations/certlock"
	"github.com/fencelock/fencelock/internal/testclient"
	"github.com/fencelock/fencelock/memlock"
)

// The interfaces are certmagic's own.
var (
	_ certmagic.Locker           = (*certlock.Locker)(nil)
	_ certmagic.TryLocker        = (*certlock.Locker)(nil)
	_ certmagic.LockLeaseRenewer = (*certlock.Locker)(nil)
)

// storage is a certmagic.Storage that keeps files here and locks there.
type storage struct {
	*certmagic.FileStorage
	locks *certlock.Locker
}

func (s storage) Lock(ctx context.Context, name string) error   { return s.locks.Lock(ctx, name) }
func (s storage) Unlock(ctx context.Context, name string) error { return s.locks.Unlock(ctx, name) }

var _ certmagic.Storage = storage{}

func open(t *testing.T, s *memlock.Store) (*fencelock.Client, *certlock.Locker) {
	c := testclient.New(t, s, nil)
	t.Cleanup(func() { c.Close() })
	return c, certlock.New(c)
}

func TestTwoMachinesExcludeEachOther(t *testing.T) {
	store := memlock.New()
	_, a := open(t, store)
	_, b := open(t, store)
	ctx, cancel := context.WithCancel(t.Context())
	steps.Must(t, a.Lock(ctx, "issue_cert_example.com"))
	cancel() // the lock stays
	if ok, err := b.TryLock(t.Context(), "issue_cert_example.com"); ok || err != nil {
		t.Errorf("the second one got %v, %v", ok, err)
	}
	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	steps.Is(t, "waiting", b.Lock(short, "issue_cert_example.com"), context.DeadlineExceeded)
	steps.OK(t, a.RenewLockLease(t.Context(), "issue_cert_example.com", time.Minute))
	steps.OK(t, a.Unlock(t.Context(), "issue_cert_example.com"))
	steps.Well(t, "Lock after the release", b.Lock(t.Context(), "issue_cert_example.com"))
	steps.OK(t, b.Unlock(t.Context(), "issue_cert_example.com"))
	if err := b.Unlock(t.Context(), "issue_cert_example.com"); err == nil {
		t.Error("a second Unlock is fine")
	}
}

// One goroutine lost the lock, another one of the same process has it now: the first
// one's Unlock must not open the door for a third.
func TestUnlockOfALostLockReleasesNobodyElses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		_, a := open(t, store)
		_, b := open(t, store)
		steps.Must(t, a.Lock(t.Context(), "n"))
		second := make(chan error, 1)
		go func() { second <- a.Lock(t.Context(), "n") }() // another goroutine
		store.Flush()                                      // the next renewal tells
		steps.Must(t, <-second)
		steps.Is(t, "Unlock of the lost lock", a.Unlock(t.Context(), "n"), fencelock.ErrLost)
		if ok, err := b.TryLock(t.Context(), "n"); ok || err != nil {
			t.Errorf("a third one got %v, %v", ok, err)
		}
		steps.OK(t, a.Unlock(t.Context(), "n"))
	})
}
