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

// acquired and kept are what a child that holds leases reports.
type acquired struct {
	PerSecond  float64 // leases acquired
	Bytes      float64 // of heap and stacks, for each
	Goroutines float64 // for each
}

type kept struct {
	CPU  time.Duration // that the child used while it only held
	Lost int64         // leases that were no longer held when they were released
}

// held is a process that holds many leases and has them renewed, each third of their TTL.
// Each turn is a fresh process.
func (b *Bench) held(ctx context.Context) error {
	for _, h := range []struct {
		size int
		ttl  time.Duration
	}{{1000, 1500 * time.Millisecond}, {10000, 3 * time.Second}, {100000, 9 * time.Second}} {
		rounds := b.Rounds
		if h.size > 10000 || b.Short {
			rounds = min(rounds, 3) // each takes a whole lease
		}
		peers := participants("held", h.size, b.Peers)
		hung := map[string]bool{} // a library that hung costs 20 seconds, so it gets one turn
		if err := b.each(ctx, "held", h.size, rounds, peers, func(ctx context.Context, i int) (Values, error) {
			p := peers[i]
			if hung[p.Name] {
				return Values{}, nil
			}
			v, err := b.holdTurn(ctx, p, h.size, h.ttl)
			hung[p.Name] = v["hung"] > 0 && p.Name != ours
			return v, err
		}); err != nil {
			return err
		}
	}
	return nil
}

// holdTurn has a child hold leases, and measures it while each is renewed once.
func (b *Bench) holdTurn(ctx context.Context, p Peer, size int, ttl time.Duration) (_ Values, err error) {
	env := b.env()
	env.TTL = ttl
	c, err := b.startChild(ctx, job{Do: "hold", Peer: p.Name, Env: env, Leases: size, Key: b.key()})
	if err != nil {
		return nil, err
	}
	ended := false
	defer func() {
		if !ended {
			c.kill()
		}
	}()
	var has acquired
	switch err := c.receive(&has, 20*time.Second); {
	case errors.Is(err, errHung):
		return Values{"hung": 1}, nil
	case err != nil:
		return nil, err
	}
	if err := pause(ctx, ttl/9); err != nil { // the costs of the beginning are over
		return nil, err
	}
	window := ttl / 3
	cost, err := b.measure(p, func() error {
		return errors.Join(c.proceed(), pause(ctx, window))
	})
	if err != nil {
		return nil, err
	}
	var end kept
	switch err := errors.Join(c.proceed(), c.receive(&end, time.Minute)); {
	case errors.Is(err, errHung):
		return Values{"hung": 1}, nil
	case err != nil:
		return nil, err
	}
	ended = true
	return Values{
		"requests_per_s": cost.requests / window.Seconds(),
		"requests_share": 100 * cost.requests / float64(size),
		"server_percent": 100 * cost.server / window.Seconds(),
		"cpu_percent":    100 * end.CPU.Seconds() / window.Seconds(),
		"bytes":          has.Bytes, "goroutines": has.Goroutines, "acquired_per_s": has.PerSecond,
		"lost": float64(end.Lost), "hung": 0,
	}, c.end()
}

// hold is what the child does: it acquires the leases, reports their weight, holds them
// until it may proceed and releases them.
func hold(j job, p Peer, parent *parent) error {
	l, err := p.Open(j.Env)
	if err != nil {
		return err
	}
	ctx := context.Background()
	if err := l.Do(ctx, j.Key, func(int64) {}); err != nil {
		return err
	}
	held := make([]Held, j.Leases)
	bytes, goroutines := memory()
	start := time.Now()
	if err := inParallel(len(held), func(i int) (err error) {
		held[i], err = l.Hold(ctx, fmt.Sprintf("%s-%d", j.Key, i))
		return err
	}); err != nil {
		return err
	}
	n := float64(len(held))
	has := acquired{PerSecond: n / time.Since(start).Seconds()}
	moreBytes, moreGoroutines := memory()
	has.Bytes, has.Goroutines = (moreBytes-bytes)/n, (moreGoroutines-goroutines)/n
	if err := errors.Join(parent.send(has), parent.wait()); err != nil {
		return err
	}
	before := cpuTime()
	if err := parent.wait(); err != nil {
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
	return errors.Join(parent.send(end), l.Close())
}

// memory is the heap and the stacks of this process in bytes, and its goroutines.
func memory() (bytes, goroutines float64) {
	runtime.GC()
	runtime.GC() // objects with a finalizer go with the second
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
