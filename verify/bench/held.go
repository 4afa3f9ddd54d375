package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"
)

// held is a turn of a fresh process that holds many leases. It measures itself: what a
// process had in memory before would make leases cheaper.
func (b *Bench) held(ctx context.Context, p part, peer Peer, _ []Locker) (v Values, err error) {
	j := job{Peer: peer.Name, Env: b.env(), Key: b.key(), Leases: p.size}
	j.Env.TTL = p.length
	c, err := startChild(ctx, j)
	if err != nil {
		return nil, err
	}
	return v, errors.Join(c.receive(&v), c.cmd.Wait())
}

// hold is what the child does. It acquires the leases, and measures while each is renewed
// once, a third of its TTL. Then it releases them.
func hold(j job, peer Peer) (_ Values, err error) {
	ctx, n := context.Background(), float64(j.Leases)
	b := &Bench{server: &server{redis: []*redis.Client{redis.NewClient(&redis.Options{Addr: j.Env.Addr})}}}
	defer func() { err = errors.Join(err, b.server.stop()) }()
	l, err := peer.Open(j.Env)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	if err := l.Do(ctx, j.Key, func(int64) {}); err != nil {
		return nil, err
	}
	held := make([]any, j.Leases)
	bytes, goroutines := memory()
	begun := time.Now()
	if err := inParallel(j.Leases, func(i int) (err error) {
		held[i], err = l.Hold(ctx, fmt.Sprintf("%s-%d", j.Key, i))
		return err
	}); err != nil {
		return nil, err
	}
	took := time.Since(begun)
	moreBytes, moreGoroutines := memory()
	if err := pause(ctx, j.Env.TTL/9); err != nil { // the costs of the beginning are over
		return nil, err
	}
	window := j.Env.TTL / 3
	cost, err := b.measure(peer, func() error { return pause(ctx, window) })
	if err != nil {
		return nil, err
	}
	var lost atomic.Int64
	_ = inParallel(j.Leases, func(i int) error {
		if l.Release(ctx, held[i]) != nil {
			lost.Add(1)
		}
		return nil
	})
	return Values{
		"requests_per_s":   cost.requests / window.Seconds(),
		"requests_share":   100 * cost.requests / n,
		"server_percent":   100 * cost.server / window.Seconds(),
		"cpu_percent":      100 * cost.client / window.Seconds(),
		"lease_bytes":      (moreBytes - bytes) / n,
		"lease_goroutines": (moreGoroutines - goroutines) / n,
		"acquired_per_s":   n / took.Seconds(),
		"lost":             float64(lost.Load()),
	}, nil
}

// memory is the heap and the stacks of this process in bytes, and its goroutines.
func memory() (bytes, goroutines float64) {
	runtime.GC()
	runtime.GC() // objects with a finalizer go with the second
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc + m.StackInuse), float64(runtime.NumGoroutine())
}

// inParallel calls do for 0 to n-1, 256 at a time.
func inParallel(n int, do func(i int) error) error {
	var all errgroup.Group
	all.SetLimit(256)
	for i := range n {
		all.Go(func() error { return do(i) })
	}
	return all.Wait()
}
