package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// taken and kept are what a child that holds leases reports.
type taken struct {
	PerSecond  float64 // leases taken
	Bytes      float64 // of heap and stacks, for each
	Goroutines float64 // for each
}

type kept struct {
	CPU  time.Duration // that the child used while it only held
	Lost int64         // leases that were no longer held when they were released
}

// held is a process that holds many leases and has them renewed. Each library gets
// a fresh process each time, so that what it costs is all there is.
func (b *Bench) held(ctx context.Context) error {
	for _, h := range []struct {
		size int
		ttl  time.Duration
	}{{1000, 1500 * time.Millisecond}, {10000, 3 * time.Second}, {100000, 9 * time.Second}} {
		rounds := b.Rounds
		if h.size > 10000 {
			rounds = min(rounds, 3) // each takes a whole lease
		}
		if b.Short {
			rounds = min(rounds, 2)
		}
		peers := taking("held", h.size, b.Peers)
		hung := map[string]bool{} // once is enough: it costs 20 seconds
		if err := b.each(ctx, "held", h.size, rounds, peers, func(ctx context.Context, i int) (Values, error) {
			p := peers[i]
			if hung[p.Name] {
				return Values{}, nil // neither measured nor counted again
			}
			v, err := b.burden(ctx, p, h.size, h.ttl, false)
			hung[p.Name] = v["hung"] > 0 && p.Name != ours
			return v, err
		}); err != nil {
			return err
		}
	}
	// Once, a whole lease and a third of it, with the processors busy.
	size := 100000
	peers := taking("held", size, b.Peers)
	return b.each(ctx, "busy", size, 1, peers, func(ctx context.Context, i int) (Values, error) {
		return b.burden(ctx, peers[i], size, 9*time.Second, true)
	})
}

// burden is one turn. All libraries renew after a third of the lease. busy has as many
// goroutines of the holder as there are processors calculate, for a lease and a third of
// one: whoever is not renewed in that time is lost.
func (b *Bench) burden(ctx context.Context, p Peer, size int, ttl time.Duration, busy bool) (Values, error) {
	env := b.env()
	env.TTL = ttl
	c, err := b.startChild(ctx, job{Do: "hold", Peer: p.Name, Env: env, Leases: size, Key: b.key(), Busy: busy})
	if err != nil {
		return nil, err
	}
	whole := false
	defer func() {
		if !whole {
			c.kill()
		}
	}()
	var has taken
	switch err := c.hear(&has, 20*time.Second); {
	case errors.Is(err, errHangs):
		return Values{"hung": 1}, nil
	case err != nil:
		return nil, err
	}
	// What only the beginning costs is over soon.
	if err := pause(ctx, ttl/9); err != nil {
		return nil, err
	}
	// Every lease is renewed once in a third of it.
	window := ttl / 3
	if busy {
		window += ttl
	}
	cost, err := b.price(p, func() error {
		return errors.Join(c.next(), pause(ctx, window))
	})
	if err != nil {
		return nil, err
	}
	var end kept
	if err := c.next(); err != nil {
		return nil, err
	}
	switch err := c.hear(&end, time.Minute); {
	case errors.Is(err, errHangs):
		return Values{"hung": 1}, nil
	case err != nil:
		return nil, err
	}
	whole = true
	renewed := float64(size) / (ttl / 3).Seconds() // leases a second
	return Values{
		"requests_per_s": cost.requests / window.Seconds(),
		"requests_share": 100 * cost.requests / window.Seconds() / renewed,
		"server_percent": 100 * cost.cpu / window.Seconds(),
		"cpu_percent":    100 * end.CPU.Seconds() / window.Seconds(),
		"bytes":          has.Bytes, "goroutines": has.Goroutines, "taken_per_s": has.PerSecond,
		"lost": float64(end.Lost), "hung": 0,
	}, c.end()
}

// hold is what the child does: it takes the leases, tells what they weigh, holds
// them for as long as it is told to and releases them.
func hold(j job, p Peer, say func(any) error, told func() error) error {
	l, err := p.Open(j.Env)
	if err != nil {
		return err
	}
	ctx := context.Background()
	if err := l.Do(ctx, j.Key, func(int64) {}); err != nil {
		return err
	}
	held := make([]Held, j.Leases)
	bytes, goroutines := weight()
	start := time.Now()
	if err := inParallel(len(held), func(i int) (err error) {
		held[i], err = l.Hold(ctx, fmt.Sprintf("%s-%d", j.Key, i))
		return err
	}); err != nil {
		return err
	}
	n := float64(len(held))
	has := taken{PerSecond: n / time.Since(start).Seconds()}
	moreBytes, moreGoroutines := weight()
	has.Bytes, has.Goroutines = (moreBytes-bytes)/n, (moreGoroutines-goroutines)/n
	if err := errors.Join(say(has), told()); err != nil {
		return err
	}
	before := cpuTime()
	var over atomic.Bool
	var work sync.WaitGroup
	for range runtime.NumCPU() {
		if j.Busy {
			work.Go(func() {
				for x := uint64(1); !over.Load(); x = x*6364136223846793005 + 1 {
				}
			})
		}
	}
	err = told()
	over.Store(true)
	work.Wait()
	if err != nil {
		return err
	}
	end := kept{CPU: cpuTime() - before}
	var lost atomic.Int64
	_ = inParallel(len(held), func(i int) error {
		if held[i].Release(ctx) != nil {
			lost.Add(1)
		}
		return nil
	})
	end.Lost = lost.Load()
	return errors.Join(say(end), l.Close())
}

// weight is what this process has on its heap and its stacks, and its goroutines.
func weight() (bytes, goroutines float64) {
	runtime.GC()
	runtime.GC() // what had a finalizer goes with the second
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc + m.StackInuse), float64(runtime.NumGoroutine())
}

// inParallel calls do for 0 to n-1 on 256 goroutines.
func inParallel(n int, do func(i int) error) error {
	var next atomic.Int64
	var all sync.WaitGroup
	errs := make([]error, 256)
	for k := range errs {
		all.Go(func() {
			for errs[k] == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				errs[k] = do(i)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}
