package bench

import (
	"context"
	"fmt"
	"time"
)

// hot is many goroutines of one process that want one key, and do nothing with it.
func (b *Bench) hot(ctx context.Context) error {
	sizes := []int{8, 64, 512}
	if b.Short {
		sizes = []int{64}
	}
	for _, size := range sizes {
		rs, err := b.rounds(ctx, "hot", size, b.Rounds, fairPeer, func(ctx context.Context, p Peer, l Locker) (Values, error) {
			var g guard
			key := b.key()
			c := gather(l, size, func(int) (string, *guard) { return key, &g })
			var grants, passed int64
			var elapsed time.Duration
			cost, err := b.price(p, func() error {
				c.begin()
				err := pause(ctx, b.turn(time.Second))
				elapsed = time.Since(c.start)
				grants, passed = g.grants.Load(), g.passed.Load()
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
		})
		if err != nil {
			return err
		}
		b.out.table(fmt.Sprintf("Hot key: %d goroutines of one process", size), rs, contention()...)
	}
	return nil
}

// contention are the columns of the cases in which many want one key.
func contention() []column {
	return []column{
		{name: "handovers_per_s", head: "hand-overs/s"},
		{name: "handovers_per_s", head: "× rueidislock", base: fairPeer},
		{name: "grants_per_s", head: "grants/s"},
		{name: "jain", head: "Jain"},
		{name: "p50_ms", head: "p50 wait ms"},
		{name: "p99_ms", head: "p99 wait ms"},
		{name: "requests", head: "requests/grant"},
		{name: "server_us", head: "server CPU µs/grant"},
		{name: "client_us", head: "client CPU µs/grant"},
		{name: "violations", head: "violations", of: sum},
	}
}
