package fencelock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/internal/testclient"
	"github.com/fencelock/fencelock/memlock"
)

// resource is what the lock protects: it notices who is in it at the same time.
type resource struct {
	writers, readers, permits atomic.Int64
	last                      atomic.Int64 // token of the last writer
}

// TestEveryCallTogether runs all calls at once in real time, for the race detector. A broken
// holder may act after its grant, so breaks have a key of their own.
func TestEveryCallTogether(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	store := memlock.New()
	var clients []*fencelock.Client
	for i := range 3 {
		clients = append(clients, testclient.New(t, store, &fencelock.Options{
			Owner: fmt.Sprint("process ", i), HandOff: []int{1, 4, 64}[i], OnEvent: func(fencelock.Event) {},
		}))
	}
	const size = 3
	var rw, sem resource
	calm := func(err error) {
		if err != nil && !errors.Is(err, fencelock.ErrNotAcquired) && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
	write := func(_ context.Context, l *fencelock.Lease) error {
		if rw.writers.Add(1) != 1 || rw.readers.Load() != 0 {
			t.Errorf("seed %d: a writer is not alone", seed)
		}
		if last := fence.Token(rw.last.Swap(int64(l.Token()))); l.Token() < last {
			t.Errorf("seed %d: token %v after %v", seed, l.Token(), last)
		}
		rw.writers.Add(-1)
		return nil
	}
	read := func(context.Context, *fencelock.Lease) error {
		rw.readers.Add(1)
		if rw.writers.Load() != 0 {
			t.Errorf("seed %d: a reader beside a writer", seed)
		}
		rw.readers.Add(-1)
		return nil
	}
	var wg sync.WaitGroup
	for g := range 12 {
		c := clients[g%len(clients)]
		rng := rand.New(rand.NewPCG(seed, uint64(g)))
		wg.Go(func() {
			for range 150 {
				ctx, cancel := context.WithTimeout(bg, time.Minute)
				switch rng.IntN(9) {
				case 0:
					calm(c.Do(ctx, "rw", write))
				case 1:
					if l, err := c.TryLock(ctx, "rw"); err == nil {
						calm(l.Do(ctx, write))
					} else {
						calm(err)
					}
				case 2:
					if l, err := c.RLock(ctx, "rw"); err == nil {
						calm(l.Do(ctx, read))
					} else {
						calm(err)
					}
				case 3: // cancelled at some point
					time.AfterFunc(time.Duration(rng.IntN(200))*time.Microsecond, cancel)
					calm(c.Do(ctx, "rw", write))
				case 4:
					n := 1 + rng.Int64N(size)
					l, err := c.Semaphore("sem", size).Acquire(ctx, n)
					if err != nil {
						calm(err)
						break
					}
					if sem.permits.Add(n) > size {
						t.Errorf("seed %d: too many permits", seed)
					}
					sem.permits.Add(-n)
					calm(l.Release(ctx))
				case 5: // shared, and released from two goroutines
					calm(c.Do(ctx, "rw", func(ctx context.Context, l *fencelock.Lease) error {
						in, err := c.Lock(ctx, "rw", fencelock.Reentrant())
						if err != nil {
							return err
						}
						var both sync.WaitGroup
						for range 2 {
							both.Go(func() { calm(in.Release(bg)) })
						}
						both.Wait()
						return write(ctx, l)
					}))
				case 6:
					m, err := c.LockAll(ctx, []string{"rw", "a", "z"}, fencelock.Wait(time.Minute))
					if err != nil {
						calm(err)
						break
					}
					calm(write(ctx, m.Lease("rw")))
					calm(m.Release(ctx))
				case 7: // broken while held, released, and renewed
					l, err := c.Lock(ctx, "broken")
					if err != nil {
						if !errors.Is(err, fencelock.ErrBroken) {
							calm(err)
						}
						break
					}
					var all sync.WaitGroup
					all.Go(func() { clients[rng.IntN(3)].Break(bg, "broken", l.Token(), "test") })
					all.Go(func() { l.Release(bg) })
					all.Go(func() { l.Renew(bg) })
					all.Wait()
					if l.Err() == nil {
						t.Errorf("seed %d: neither broken nor released", seed)
					}
				case 8:
					for _, err := range c.Lines(ctx, "") {
						calm(err)
					}
				}
				cancel()
			}
		})
	}
	wg.Wait()
	for _, c := range clients {
		ok(t, c.Shutdown(bg))
	}
	for l, err := range store.Lines(bg, "") {
		t.Errorf("seed %d: left: %+v, %v", seed, l, err)
	}
}
