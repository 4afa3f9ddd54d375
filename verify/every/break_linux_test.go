package every

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testclient"
	"github.com/fencelock/fencelock/storeurl"
)

// A holder hears of a break with its next renewal, and is in the middle of a write then.
const (
	slowWrite  = 50 * time.Millisecond
	breakDelay = ttl / 2 // longer than a third of the lease, after which it is renewed, and a write
)

// A holder that is broken goes on until it hears of that, and finishes its write. If LockDelay is
// longer, the first write of the next holder never overlaps its last one: in 500 runs, on five
// stores. Without LockDelay they overlap.
func TestBrokenHolderNeverOverlapsTheNext(t *testing.T) {
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		at := "sqlite://" + filepath.Join(t.TempDir(), "locks.db")
		breakOften(t, func() driver.Backend {
			s, err := storeurl.Open(t.Context(), at)
			steps.Must(t, err)
			t.Cleanup(func() { s.Close() })
			return s.Backend
		})
	})
	each(t, func(t *testing.T, s *store) {
		if s.open(t, s.addrs("127.0.0.1")).Info().Linger {
			breakOften(t, func() driver.Backend { return s.open(t, s.addrs("127.0.0.1")) })
		}
	})
}

// breakOften makes a hundred runs with a LockDelay, and ten without.
func breakOften(t *testing.T, open func() driver.Backend) {
	const workers, runs = 10, 10
	r := breaking{
		// Without push: the holder hears of a break as late as it can.
		holder: testclient.New(t, struct{ driver.Backend }{open()}, &fencelock.Options{TTL: ttl}),
		next:   testclient.New(t, open(), &fencelock.Options{HandOff: 1}), // its requests have ten seconds
	}
	t.Cleanup(func() { r.holder.Close() })
	t.Cleanup(func() { r.next.Close() })
	var overlaps, slow atomic.Int32
	t.Run("workers", func(t *testing.T) {
		for i := range workers {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				if run := r.run(t, 0); run != nil && run.overlap() > 0 {
					overlaps.Add(1)
				}
				for done := 0; done < runs; {
					run := r.run(t, breakDelay)
					if run == nil || run.lastEnd.Sub(run.broken) > breakDelay {
						// The machine was so slow that the holder lost its lease before the break, or
						// that renewal and write took longer than the delay.
						if slow.Add(1) > workers*runs {
							t.Fatal("the machine is too slow for this test")
						}
						continue
					}
					if over := run.overlap(); over > 0 {
						t.Errorf("the next holder began to write %v before the broken one had ended", over)
					}
					done++
				}
			})
		}
	})
	if overlaps.Load() == 0 {
		t.Errorf("no two writes of %d overlapped without LockDelay: this test would notice nothing", workers)
	}
	t.Logf("%d of %d runs overlapped without LockDelay; %d runs were too slow to judge", overlaps.Load(), workers, slow.Load())
}

// breaking is a holder and who comes after it.
type breaking struct{ holder, next *fencelock.Client }

// broken is what came of one break.
type broken struct {
	broken  time.Time // when it was asked for
	lastEnd time.Time // when the broken holder had ended its last write
	first   time.Time // when the next holder began its first
}

// overlap is for how long both wrote at once, or less than zero.
func (b *broken) overlap() time.Duration { return b.lastEnd.Sub(b.first) }

// run breaks a holder that writes all the time. It returns nil if that holder had lost its lease
// before, because no renewal arrived in time.
func (r *breaking) run(t *testing.T, delay time.Duration) *broken {
	t.Helper()
	key := newKey(t)
	lease := lock(t, r.holder, key)
	begun, ended := make(chan bool, 1), make(chan time.Time, 1)
	go func() {
		var last time.Time
		for n := 0; lease.Err() == nil; n++ {
			if n == 0 {
				begun <- true
			}
			<-time.After(slowWrite) // real time: work under the lock
			last = time.Now()
		}
		ended <- last
	}()
	next := lockBehind(t, r.next, key)
	next.inLine(t, r.next)
	<-begun
	b := &broken{broken: time.Now()}
	err := r.next.Break(t.Context(), key, lease.Token(), fencelock.Break{Reason: "it hangs", Delay: delay})
	late := errors.Is(err, fencelock.ErrNoClaim) && errors.Is(lease.Err(), fencelock.ErrLost)
	if !late {
		steps.Must(t, err)
	}
	after := next.granted(t, "the next", time.Minute)
	b.first, b.lastEnd = next.at, <-ended
	steps.Rises(t, lease.Token(), after.Token())
	release(t, "the next", after)
	if late {
		return nil
	}
	return b
}
