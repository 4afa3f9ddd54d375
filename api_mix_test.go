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
	"github.com/fencelock/fencelock/drivertest"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/internal/testclient"
	"github.com/fencelock/fencelock/memlock"
)

// resource is what the lock protects: it notices who is in it at the same time.
type resource struct {
	writers, readers, permits atomic.Int64
	last                      atomic.Int64 // token of the last writer
}

// mix runs calls at random, and judges them.
type mix struct {
	*testing.T
	seed    uint64
	clients []*fencelock.Client
	rw, sem resource
}

const permits = 3 // of the semaphore

// calm reports an error that is not one of a busy key.
func (m *mix) calm(err error) {
	for _, ok := range []error{nil, fencelock.ErrNotAcquired, context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, ok) {
			return
		}
	}
	m.Errorf("seed %d: %v", m.seed, err)
}

func (m *mix) write(_ context.Context, l *fencelock.Lease) error {
	if m.rw.writers.Add(1) != 1 || m.rw.readers.Load() != 0 {
		m.Errorf("seed %d: a writer is not alone", m.seed)
	}
	if last := fence.Token(m.rw.last.Swap(int64(l.Token()))); l.Token() < last {
		m.Errorf("seed %d: token %v after %v", m.seed, l.Token(), last)
	}
	m.rw.writers.Add(-1)
	return nil
}

func (m *mix) read(context.Context, *fencelock.Lease) error {
	m.rw.readers.Add(1)
	if m.rw.writers.Load() != 0 {
		m.Errorf("seed %d: a reader beside a writer", m.seed)
	}
	m.rw.readers.Add(-1)
	return nil
}

// under runs f under a lease, unless there is none.
func (m *mix) under(ctx context.Context, l *fencelock.Lease, err error, f func(context.Context, *fencelock.Lease) error) {
	if err == nil {
		err = l.Do(ctx, f)
	}
	m.calm(err)
}

// one makes a call.
func (m *mix) one(ctx context.Context, cancel func(), c *fencelock.Client, rng *rand.Rand) {
	switch rng.IntN(9) {
	case 0:
		m.calm(c.Do(ctx, "rw", m.write))
	case 1:
		l, err := c.TryLock(ctx, "rw")
		m.under(ctx, l, err, m.write)
	case 2:
		l, err := c.RLock(ctx, "rw")
		m.under(ctx, l, err, m.read)
	case 3: // cancelled at some point
		time.AfterFunc(time.Duration(rng.IntN(200))*time.Microsecond, cancel)
		m.calm(c.Do(ctx, "rw", m.write))
	case 4:
		m.acquire(ctx, c, 1+rng.Int64N(permits))
	case 5:
		m.calm(c.Do(ctx, "rw", func(ctx context.Context, l *fencelock.Lease) error { return m.share(ctx, c, l) }))
	case 6:
		m.lockAll(ctx, c)
	case 7:
		m.broken(ctx, c, m.clients[rng.IntN(3)])
	case 8:
		for _, err := range c.Lines(ctx, "") {
			m.calm(err)
		}
	}
}

func (m *mix) acquire(ctx context.Context, c *fencelock.Client, n int64) {
	l, err := c.Acquire(ctx, "sem", n, permits)
	if err != nil {
		m.calm(err)
		return
	}
	if m.sem.permits.Add(n) > permits {
		m.Errorf("seed %d: too many permits", m.seed)
	}
	m.sem.permits.Add(-n)
	m.calm(l.Release(ctx))
}

// share shares a lease, and releases its share from two goroutines.
func (m *mix) share(ctx context.Context, c *fencelock.Client, l *fencelock.Lease) error {
	in, err := c.Lock(ctx, "rw", fencelock.Reentrant())
	if err != nil {
		return err
	}
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() { m.calm(in.Release(bg)) })
	}
	both.Wait()
	return m.write(ctx, l)
}

func (m *mix) lockAll(ctx context.Context, c *fencelock.Client) {
	all, err := c.LockAll(ctx, []string{"rw", "a", "z"}, fencelock.Wait(time.Minute))
	if err != nil {
		m.calm(err)
		return
	}
	m.calm(m.write(ctx, fencelock.Held(all.Context(), "rw")))
	m.calm(all.Release(ctx))
}

// broken has a lease broken while it is held, released, and renewed.
func (m *mix) broken(ctx context.Context, c, breaker *fencelock.Client) {
	l, err := c.Lock(ctx, "broken")
	if err != nil {
		if !errors.Is(err, fencelock.ErrBroken) {
			m.calm(err)
		}
		return
	}
	var all sync.WaitGroup
	all.Go(func() { breaker.Break(bg, "broken", l.Token(), fencelock.Break{Reason: "test"}) })
	all.Go(func() { l.Release(bg) })
	all.Go(func() { l.Renew(bg) })
	all.Wait()
	if l.Err() == nil {
		m.Errorf("seed %d: neither broken nor released", m.seed)
	}
}

// TestEveryCallTogether runs all calls at once in real time, for the race detector. A broken
// holder may act after its grant, so breaks have a key of their own.
func TestEveryCallTogether(t *testing.T) {
	m := &mix{T: t, seed: drivertest.Seeds(t, 1)[0]}
	t.Logf("seed %d", m.seed)
	store := memlock.New()
	for i := range 3 {
		m.clients = append(m.clients, testclient.New(t, store, &fencelock.Options{
			Owner: fmt.Sprint("process ", i), HandOff: []int{1, 4, 64}[i], OnEvent: func(fencelock.Event) {},
		}))
	}
	var wg sync.WaitGroup
	for g := range 12 {
		c := m.clients[g%len(m.clients)]
		rng := rand.New(rand.NewPCG(m.seed, uint64(g)))
		wg.Go(func() {
			for range 150 {
				ctx, cancel := context.WithTimeout(bg, time.Minute)
				m.one(ctx, cancel, c, rng)
				cancel()
			}
		})
	}
	wg.Wait()
	for _, c := range m.clients {
		ok(t, c.Shutdown(bg))
	}
	for l, err := range store.Lines(bg, "") {
		t.Errorf("seed %d: left: %+v, %v", m.seed, l, err)
	}
}
