package every

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/limit"
)

// fill takes all room on a server's disk, and returns what gives it back.
func fill(t testing.TB, dir string) (free func()) {
	t.Helper()
	name := filepath.Join(dir, "filler")
	f, err := os.Create(name)
	steps.Must(t, err)
	defer f.Close()
	for size := 1 << 20; size > 0; {
		n, err := f.Write(make([]byte, size))
		if errors.Is(err, syscall.ENOSPC) || n < size && err == nil || errors.Is(err, io.ErrShortWrite) {
			size /= 2
			continue
		}
		steps.Must(t, err)
	}
	return func() {
		if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Error(err)
		}
	}
}

// The disk of a server is full. Calls end with their contexts, failures are not permanent, and
// no two hold the lock. When there is room again everything works, and tokens rise.
//
//verify:fault Redis | the disk is full, or cannot be written
//verify:fault PostgreSQL | disk full
//verify:fault MariaDB | disk full
//verify:fault etcd | disk full
//verify:fault ZooKeeper | disk full
func TestDiskOfTheServerIsFull(t *testing.T) {
	each(t, func(t *testing.T, s *store) {
		a, b := s.near(t), s.near(t)
		key := newKey(t)
		held := lock(t, a, key)
		var frees []func()
		for _, dir := range s.disks {
			frees = append(frees, fill(t, dir))
		}
		room := func() {
			for _, free := range frees {
				free()
			}
		}
		defer room()
		done, failed := 0, 0
		var first error
		// Redis takes writes until it hears from its disk.
		for began := time.Now(); time.Since(began) < ttl*3/4 || s.name == "Redis" && failed == 0; {
			if time.Since(began) > patience {
				t.Fatal("nothing fails on a full disk: this test shows nothing")
			}
			ctx, cancel := context.WithTimeout(t.Context(), ttl/4)
			lease, err := b.Lock(ctx, newKey(t), fencelock.Note(strings.Repeat("x", limit.Note)))
			cancel()
			if err == nil {
				done++
				go func() { _ = lease.Release(context.Background()) }()
			} else {
				failed++
				first = cmp.Or(first, err)
				if errors.Is(err, driver.ErrPermanent) || errors.Is(err, fencelock.ErrNotAcquired) && !errors.Is(err, fencelock.ErrUnavailable) {
					t.Fatalf("Lock on a full disk was told %v", err)
				}
			}
			if other, err := b.TryLock(t.Context(), key); err == nil {
				if held.Err() == nil {
					t.Error("a lock that is held was granted to another")
				}
				release(t, "the other", other)
				break
			}
		}
		t.Logf("%d locks of other keys, and %d failures: %v", done, failed, first)
		room()
		for _, one := range s.running {
			select {
			case <-one.Done():
				t.Logf("the server has ended, and is started again; %v", last(one.Log()))
				steps.Must(t, one.Restart())
			default:
			}
		}
		ctx := steps.Soon(t)
		if err := held.Release(ctx); err != nil && !errors.Is(err, fencelock.ErrLost) && !errors.Is(err, fencelock.ErrUnavailable) {
			t.Errorf("Release: %v", err)
		}
		next, err := b.Lock(ctx, key)
		if err != nil {
			t.Fatalf("when there was room again Lock was told %v", err)
		}
		steps.Rises(t, held.Token(), next.Token())
		steps.Well(t, "Renew", next.Renew(ctx))
		release(t, "the next", next)
	})
}

// last is the end of a log.
func last(log string) string { return log[max(0, len(log)-300):] }
