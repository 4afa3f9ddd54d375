package bench

import (
	"context"
	"runtime"
	"time"
)

// room is how many samples of a free lock are kept, so that what is counted as
// allocated is the library's own.
const room = 1 << 16

// freePart is one goroutine that locks and unlocks a key that nobody else wants, while
// the processors are kept awake. Turns are short and many.
func (b *Bench) freePart(ctx context.Context, part string, size, rounds int, length time.Duration) error {
	samples := make([]time.Duration, 0, room)
	return b.rounds(ctx, part, size, rounds, func(ctx context.Context, p Peer, l Locker) (Values, error) {
		var g guard
		key := b.key()
		warm := gather(l, 1, func(int) (string, *guard) { return key, &g })
		warm.workers[0].pairs, warm.workers[0].most = true, 10
		warm.begin()
		hung, err := warm.settle()
		if err != nil || hung > 0 {
			return Values{"hung": float64(hung)}, err
		}

		c := gather(l, 1, func(int) (string, *guard) { return key, &g })
		w := c.workers[0]
		w.pairs, w.most, w.samples = true, room, samples[:0]
		var before, after runtime.MemStats
		cost, err := b.price(p, func() (err error) {
			runtime.ReadMemStats(&before)
			c.begin()
			if err = pause(ctx, b.turn(length)); err != nil {
				return err
			}
			hung, err = c.finish()
			runtime.ReadMemStats(&after)
			return err
		})
		if err != nil {
			return nil, err
		}
		n := float64(c.pairs())
		if n == 0 {
			return Values{"hung": float64(hung)}, nil
		}
		all := c.sorted()
		v := Values{
			"p50_us": percentile(all, 50) / 1e3, "p99_us": percentile(all, 99) / 1e3,
			"allocs":     float64(after.Mallocs-before.Mallocs) / n,
			"bytes":      float64(after.TotalAlloc-before.TotalAlloc) / n,
			"violations": g.violations(), "hung": float64(hung),
		}
		cost.per(n, p, v)
		return v, nil
	})
}

// keysPart is many goroutines, each with a key of its own. Turns are short and many.
func (b *Bench) keysPart(ctx context.Context, part string, size, rounds int, length time.Duration) error {
	return b.rounds(ctx, part, size, rounds, func(ctx context.Context, p Peer, l Locker) (Values, error) {
		guards := make([]guard, size)
		c := gather(l, size, func(i int) (string, *guard) { return b.key(), &guards[i] })
		for _, w := range c.workers {
			w.pairs = true
		}
		var hung int
		var granted int64
		var elapsed time.Duration
		cost, err := b.price(p, func() (err error) {
			c.begin()
			if err = pause(ctx, b.turn(length)); err != nil {
				return err
			}
			elapsed = time.Since(c.start)
			for i := range guards {
				granted += guards[i].grants.Load()
			}
			hung, err = c.finish()
			return err
		})
		if err != nil {
			return nil, err
		}
		n, all := float64(c.pairs()), c.sorted()
		v := Values{
			"pairs_per_s": float64(granted) / elapsed.Seconds(),
			"p50_us":      percentile(all, 50) / 1e3, "p99_us": percentile(all, 99) / 1e3,
			"hung": float64(hung), "violations": 0,
		}
		for i := range guards {
			v["violations"] += guards[i].violations()
		}
		cost.per(n, p, v)
		return v, nil
	})
}

// hotPart is many goroutines of one process that want one key, and do nothing with it.
func (b *Bench) hotPart(ctx context.Context, part string, size, rounds int, length time.Duration) error {
	return b.rounds(ctx, part, size, rounds, func(ctx context.Context, p Peer, l Locker) (Values, error) {
		var g guard
		key := b.key()
		c := gather(l, size, func(int) (string, *guard) { return key, &g })
		settle := time.Duration(0)
		if b.warm {
			settle = length / 2 // until all of them wait
		}
		return b.crowdTurn(ctx, p, c, &g, settle, length)
	})
}

// crowdTurn is one turn of goroutines that all want the key that g guards. What they do
// while settle passes is no part of it.
func (b *Bench) crowdTurn(ctx context.Context, p Peer, c *crowd, g *guard,
	settle, length time.Duration,
) (Values, error) {
	c.begin()
	if err := pause(ctx, settle); err != nil {
		return nil, err
	}
	var grants, passed int64
	var elapsed time.Duration
	cost, err := b.price(p, func() error {
		begun, grantsBefore, passedBefore := time.Now(), g.grants.Load(), g.passed.Load()
		err := pause(ctx, b.turn(length))
		elapsed = time.Since(begun)
		grants, passed = g.grants.Load()-grantsBefore, g.passed.Load()-passedBefore
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := c.halt(); err != nil {
		return nil, err
	}
	all := c.sorted()
	v := Values{
		"handovers_per_s": float64(passed) / elapsed.Seconds(),
		"grants_per_s":    float64(grants) / elapsed.Seconds(),
		"jain":            jain(c.each()),
		"p50_ms":          percentile(all, 50) / 1e6, "p99_ms": percentile(all, 99) / 1e6,
		"violations": g.violations(),
	}
	cost.per(float64(grants), p, v)
	return v, nil
}
