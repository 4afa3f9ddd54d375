package fencelock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/faulty"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/memlock"
)

// TestRandomProgramsUnderFaults runs random programs of three processes on one
// store, each behind a network of its own that delays, refuses, loses replies, and
// goes away for longer than a lease. It checks at every grant that no two believe
// what excludes each other, that tokens rise, and at the end that nothing is left.
//
// FENCELOCK_SEED replays one run, FENCELOCK_RUNS sets how many there are.
func TestRandomProgramsUnderFaults(t *testing.T) {
	runs := number(t, "FENCELOCK_RUNS", 200)
	first := uint64(time.Now().UnixNano())
	if s := number(t, "FENCELOCK_SEED", 0); s != 0 {
		first, runs = uint64(s), 1
	}
	for i := range runs {
		seed := first + uint64(i)
		if !t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) { randomProgram(t, seed) }) {
			t.Fatalf("replay with FENCELOCK_SEED=%d", seed)
		}
	}
}

func number(t *testing.T, name string, otherwise int64) int64 {
	s := os.Getenv(name)
	if s == "" {
		return otherwise
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// belief is who holds what, as the holders themselves believe.
type belief struct {
	t      *testing.T
	mu     sync.Mutex
	held   map[string]map[*fencelock.Lease]int64 // weight, driver.RW for exclusive
	last   map[string]fence.Token
	grants int
}

func (b *belief) got(l *fencelock.Lease, weight, capacity int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.grants++
	if err := l.Err(); err != nil {
		return // returned, and lost at the same moment
	}
	sum := weight
	for other, w := range b.held[l.Key()] {
		if other.Err() == nil && other.Token() != l.Token() {
			sum += w
		}
	}
	if sum > capacity {
		b.t.Errorf("%s: granted token %v with weight %d beside others: %d of %d", l.Key(), l.Token(), weight, sum, capacity)
	}
	if weight == driver.RW {
		if l.Token() <= b.last[l.Key()] {
			b.t.Errorf("%s: token %v after %v", l.Key(), l.Token(), b.last[l.Key()])
		}
		b.last[l.Key()] = l.Token()
	}
	if b.held[l.Key()] == nil {
		b.held[l.Key()] = map[*fencelock.Lease]int64{}
	}
	b.held[l.Key()][l] = weight
}

func (b *belief) ends(l *fencelock.Lease) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.held[l.Key()], l)
}

func randomProgram(t *testing.T, seed uint64) {
	synctest.Test(t, func(t *testing.T) {
		s := memlock.New()
		b := &belief{t: t, held: map[string]map[*fencelock.Lease]int64{}, last: map[string]fence.Token{}}
		start := time.Now()
		var work, nemesis sync.WaitGroup
		var clients []*fencelock.Client
		var nets []*faulty.Backend
		healed := make(chan struct{})
		for p := range 3 {
			rng := rand.New(rand.NewPCG(seed, uint64(p)))
			lease := []time.Duration{time.Second, 5 * time.Second}[rng.IntN(2)]
			net := faulty.New(shared{s}, seed+uint64(p), faulty.Options{
				Delay: lease / time.Duration(4+rng.IntN(100)),
				Fail:  rng.Float64() * 0.2, Lose: rng.Float64() * 0.2, Late: rng.Float64() * 0.1,
				DropPushes: rng.IntN(3) == 0,
			})
			c := fencelock.New(net, &fencelock.Options{TTL: lease, HandOff: []int{0, 1, 2, 5}[rng.IntN(4)]})
			clients, nets = append(clients, c), append(nets, net)
			nemesis.Go(func() {
				for {
					select {
					case <-healed:
						return
					case <-time.After(upTo(rng, 20*lease)):
					}
					net.Pause()
					after(upTo(rng, 2*lease))
					net.Resume()
				}
			})
			for g := range 3 {
				rng := rand.New(rand.NewPCG(seed, uint64(100+10*p+g)))
				work.Go(func() {
					for range 6 {
						randomUse(t, b, c, rng, lease)
					}
				})
			}
		}
		work.Wait()
		if b.grants == 0 {
			t.Error("nothing was ever granted: this run tests nothing")
		}
		close(healed)
		nemesis.Wait()
		tookAtMost(t, start, 20*time.Minute)
		// The faults are over. Now the clean-up gets through, and delayed requests have
		// arrived: no ghost may be left that only its lease would end.
		for _, net := range nets {
			net.Set(faulty.Options{})
		}
		after(1500 * time.Millisecond)
		for _, c := range clients {
			c.Close()
		}
		for _, key := range []string{"k0", "k1", "s"} {
			line, _ := s.Line(context.Background(), key)
			for _, st := range line.Claims {
				if !st.Lingering {
					t.Errorf("%s: a ghost is left: %+v", key, st)
				}
			}
		}
		after(20 * time.Second) // what lingers runs out
		wantEmpty(t, s)
	})
}

// shared keeps one process from closing the store of all.
type shared struct{ *memlock.Store }

func (shared) Close() error { return nil }

// randomUse takes something in some way, holds it for a while, and gives it back.
func randomUse(t *testing.T, b *belief, c *fencelock.Client, rng *rand.Rand, lease time.Duration) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var opts []fencelock.Option // for all methods
	wait := time.Duration(-1)
	switch rng.IntN(8) {
	case 0:
		wait = upTo(rng, 3*lease)
	case 1:
		timer := time.AfterFunc(upTo(rng, 3*lease), cancel)
		defer timer.Stop()
	case 2:
		opts = append(opts, fencelock.FixedLease(lease/2+upTo(rng, 2*lease)))
	case 3:
		opts = append(opts, fencelock.MaxHold(lease/2+upTo(rng, 2*lease)))
	case 4:
		opts = append(opts, fencelock.MinHold(upTo(rng, lease)))
	case 5:
		opts = append(opts, fencelock.Note("odd"))
	}
	key, weight, capacity := fmt.Sprint("k", rng.IntN(2)), int64(driver.RW), int64(driver.RW)
	waiting := opts // for methods that wait
	if wait >= 0 {
		waiting = append(waiting, fencelock.Wait(wait))
	}
	var l *fencelock.Lease
	var err error
	switch rng.IntN(8) {
	case 0:
		l, err = c.TryLock(ctx, key, opts...)
	case 1, 2:
		weight = 1
		l, err = c.RLock(ctx, key, waiting...)
	case 3:
		key, capacity, weight = "s", 3, 1+rng.Int64N(3)
		l, err = c.Semaphore(key, 3).Acquire(ctx, weight, waiting...)
	case 4:
		weight = 1
		l, err = c.TryRLock(ctx, key, opts...)
	default:
		l, err = c.Lock(ctx, key, waiting...)
	}
	if err != nil {
		if !errors.Is(err, fencelock.ErrNotAcquired) && !errors.Is(err, fencelock.ErrUnavailable) && ctx.Err() == nil {
			t.Errorf("%s: %v", key, err)
		}
		after(upTo(rng, lease))
		return
	}
	b.got(l, weight, capacity)
	if weight == driver.RW && rng.IntN(4) == 0 && l.Context().Err() == nil {
		if in, err := c.Lock(l.Context(), key, fencelock.Reentrant()); err == nil {
			if in.Token() < l.Token() {
				t.Errorf("inner token %v, outer %v", in.Token(), l.Token())
			}
			after(upTo(rng, lease/4))
			in.Release(ctx)
		}
	}
	hold := upTo(rng, 2*lease)
	if rng.IntN(2) == 0 {
		hold = upTo(rng, lease/10)
	}
	select {
	case <-l.Context().Done():
	case <-time.After(hold):
	}
	if rng.IntN(5) == 0 {
		l.Renew(ctx)
	}
	b.ends(l)
	if err := l.Release(ctx); err != nil && !errors.Is(err, fencelock.ErrLost) && !errors.Is(err, fencelock.ErrUnavailable) {
		t.Errorf("%s: release: %v", key, err)
	}
}

// upTo draws a duration below d.
func upTo(rng *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(rng.Int64N(max(int64(d), 1)))
}
