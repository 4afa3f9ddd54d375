package certlock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/caddyserver/certmagic"

	"github.com/fencelock/fencelock"
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
	c := testclient.New(t, s, &fencelock.Options{TTL: 300 * time.Millisecond})
	t.Cleanup(func() { c.Close() })
	return c, certlock.New(c)
}

func TestTwoMachinesExcludeEachOther(t *testing.T) {
	store := memlock.New()
	_, a := open(t, store)
	_, b := open(t, store)
	ctx, cancel := context.WithCancel(t.Context())
	if err := a.Lock(ctx, "issue_cert_example.com"); err != nil {
		t.Fatal(err)
	}
	cancel() // the lock stays
	if ok, err := b.TryLock(t.Context(), "issue_cert_example.com"); ok || err != nil {
		t.Errorf("the second one got %v, %v", ok, err)
	}
	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := b.Lock(short, "issue_cert_example.com"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("waiting ended with %v", err)
	}
	if err := a.RenewLockLease(t.Context(), "issue_cert_example.com", time.Minute); err != nil {
		t.Error(err)
	}
	if err := a.Unlock(t.Context(), "issue_cert_example.com"); err != nil {
		t.Error(err)
	}
	if err := b.Lock(t.Context(), "issue_cert_example.com"); err != nil {
		t.Errorf("after the release the second one got %v", err)
	}
	if err := b.Unlock(t.Context(), "issue_cert_example.com"); err != nil {
		t.Error(err)
	}
	if err := b.Unlock(t.Context(), "issue_cert_example.com"); err == nil {
		t.Error("a second Unlock is fine")
	}
}

// One goroutine lost the lock, another one of the same process has it now: the first
// one's Unlock must not open the door for a third.
func TestUnlockOfALostLockReleasesNobodyElses(t *testing.T) {
	store := memlock.New()
	_, a := open(t, store)
	_, b := open(t, store)
	if err := a.Lock(t.Context(), "n"); err != nil {
		t.Fatal(err)
	}
	second := make(chan error, 1)
	go func() { second <- a.Lock(t.Context(), "n") }() // another goroutine
	store.Flush()                                      // the next renewal tells
	if err := <-second; err != nil {
		t.Fatal(err)
	}
	if err := a.Unlock(t.Context(), "n"); !errors.Is(err, fencelock.ErrLost) {
		t.Errorf("Unlock of the lost lock: %v", err)
	}
	if ok, err := b.TryLock(t.Context(), "n"); ok || err != nil {
		t.Errorf("a third one got %v, %v", ok, err)
	}
	if err := a.Unlock(t.Context(), "n"); err != nil {
		t.Error(err)
	}
}
