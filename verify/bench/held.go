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

// holdTurn has a fresh process hold many leases, and measures it while each is renewed once,
// a third of its TTL.
func (b *Bench) holdTurn(ctx context.Context, p part, peer Peer, _ []Locker) (Values, error) {
	ctx, cancel := context.WithTimeout(ctx, turnTimeout)
	defer cancel()
	env := b.env()
	env.TTL = p.length
	c, err := b.startChild(ctx, job{Do: "hold", Peer: peer.Name, Env: env, Leases: p.size, Key: b.key()})
	if err != nil {
		return nil, err
	}
	var has acquired
	if err := c.receive(&has); err != nil {
		return nil, err
	}
	if err := pause(ctx, env.TTL/9); err != nil { // the costs of the beginning are over
		return nil, err
	}
	window := env.TTL / 3
	cost, err := b.measure(peer, func() error {
		return errors.Join(c.proceed(), pause(ctx, window))
	})
	if err != nil {
		return nil, err
	}
	var end kept
	if err := errors.Join(c.proceed(), c.receive(&end)); err != nil {
		return nil, err
	}
	return Values{
		"requests_per_s": cost.requests / window.Seconds(),
		"requests_share": 100 * cost.requests / float64(p.size),
		"server_percent": 100 * cost.server / window.Seconds(),
		"cpu_percent":    100 * end.CPU.Seconds() / window.Seconds(),
		"bytes":          has.Bytes, "goroutines": has.Goroutines, "acquired_per_s": has.PerSecond,
		"lost": float64(end.Lost),
	}, c.end()
}

// hold is what the child does: it acquires the leases, reports their weight, holds them
// until it may proceed and releases them.
func hold(j job, l Locker, parent *parent) error {
	ctx := context.Background()
	if err := l.Do(ctx, j.Key, func(int64) {}); err != nil {
		return err
	}
	held := make([]any, j.Leases)
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
		if l.Release(ctx, held[i]) != nil {
			lost.Add(1)
		}
		return nil
	})
	end.Lost = lost.Load()
	return parent.send(end)
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
