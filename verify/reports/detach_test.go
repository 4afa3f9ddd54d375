//go:build verify

package reports

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testclient"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/storeurl"
)

// during is a store that does something while a Detach is under way: before it is sent, and after
// the server has applied it.
type during struct {
	driver.Backend
	driver.Detacher
	do func()
}

func (d *during) Detach(ctx context.Context, t driver.Ticket) error {
	d.do()
	err := d.Detacher.Detach(ctx, t)
	d.do()
	return err
}

func openedClient(t *testing.T, store string, wrap func(driver.Backend) driver.Backend) *fencelock.Client {
	t.Helper()
	opened, err := storeurl.Open(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(opened.Close)
	c := testclient.New(t, wrap(opened.Backend), nil)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// detachers are the stores whose leases pass from one process to another.
func detachers(t *testing.T) map[string]string {
	return map[string]string{
		"Redis":      testserver.Redis(t).URL(),
		"PostgreSQL": testserver.Postgres(t).URL(),
		"MariaDB":    testserver.MariaDB(t).URL(),
		"SQLite":     "sqlite:" + filepath.Join(t.TempDir(), "locks.db"),
		"etcd":       testserver.Etcd(t).URL(),
	}
}

// A goroutine takes a Reentrant share of a lease while another one detaches it. There were three
// live holders, and the release of the share ended the lease of the process that had adopted the handle.
func TestReentrantShareDuringADetach(t *testing.T) {
	for name, store := range detachers(t) {
		t.Run(name, func(t *testing.T) {
			asIs := func(b driver.Backend) driver.Backend { return b }
			seam := &during{do: func() {}}
			a := openedClient(t, store, func(b driver.Backend) driver.Backend {
				seam.Backend, seam.Detacher = b, b.(driver.Detacher)
				return seam
			})
			b, c := openedClient(t, store, asIs), openedClient(t, store, asIs)
			l, err := a.Lock(t.Context(), "job")
			if err != nil {
				t.Fatal(err)
			}
			inside := l.Context()
			asked := 0
			seam.do = func() {
				asked++
				share, err := a.Lock(inside, "job", fencelock.Reentrant(), fencelock.Wait(0))
				if !errors.Is(err, fencelock.ErrDetached) {
					t.Errorf("the share %v, %v; want ErrDetached", share, err)
				}
			}
			h, err := a.Detach(t.Context(), l)
			if err != nil || asked != 2 {
				t.Fatalf("%v; %d shares were asked for", err, asked)
			}
			seam.do()
			x, err := b.Detached(h).Adopt(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := a.Shutdown(ctx); err != nil {
				t.Errorf("the first process holds nothing, and its Shutdown returned %v", err)
			}
			if _, err := c.TryLock(t.Context(), "job"); !errors.Is(err, fencelock.ErrNotAcquired) {
				t.Errorf("a try beside the adopted lease: %v", err)
			}
			if err := errors.Join(x.Err(), x.Release(t.Context())); err != nil {
				t.Errorf("the adopted lease: %v", err)
			}
			next, err := c.TryLock(t.Context(), "job")
			if err != nil {
				t.Fatalf("nobody holds the lock: %v", err)
			}
			if err := next.Release(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// A program finishes one detached lease for two slots. The second one was noted nowhere, and the program was told that
// it is done.
func TestDetachedLeaseFinishesOneSlot(t *testing.T) {
	for name, store := range detachers(t) {
		t.Run(name, func(t *testing.T) {
			c := openedClient(t, store, func(b driver.Backend) driver.Backend { return b })
			l, err := c.Lock(t.Context(), "report")
			if err != nil {
				t.Fatal(err)
			}
			h, err := c.Detach(t.Context(), l)
			if err != nil {
				t.Fatal(err)
			}
			first := time.Date(2026, 3, 1, 6, 0, 0, 0, time.UTC)
			second := first.Add(time.Hour)
			for _, f := range []struct {
				slot time.Time
				want error
			}{{first, nil}, {first, nil}, {second, fencelock.ErrLost}, {first, nil}} {
				if err := c.Detached(h).Finish(t.Context(), f.slot, ""); !errors.Is(err, f.want) {
					t.Errorf("the slot of %v: %v; want %v", f.slot, err, f.want)
				}
			}
			ran, err := c.Once(t.Context(), "report", second, func(context.Context, *fencelock.Lease) error { return nil })
			if !ran || err != nil {
				t.Errorf("the second slot ran: %v, %v; want that it was not done before", ran, err)
			}
		})
	}
}
