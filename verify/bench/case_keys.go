package bench

import (
	"context"
	"fmt"
	"time"
)

// keys is many goroutines, each with a key of its own. Turns are short and many.
func (b *Bench) keys(ctx context.Context) error {
	for _, size := range b.sizes(64, 512) {
		rs, err := b.rounds(ctx, "keys", size, 3*b.Rounds, floor, func(ctx context.Context, p Peer, l Locker) (Values, error) {
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
				if err = pause(ctx, b.turn(200*time.Millisecond)); err != nil {
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
				"hung": float64(hung),
			}
			for i := range guards {
				v["violations"] += guards[i].violations()
			}
			cost.per(n, p, v)
			return v, nil
		})
		if err != nil {
			return err
		}
		b.out.table(fmt.Sprintf("%d goroutines, %d keys", size, size), rs,
			column{name: "pairs_per_s", head: "pairs/s"},
			column{name: "pairs_per_s", head: "× raw go-redis", base: floor},
			column{name: "p50_us", head: "p50 µs"},
			column{name: "p99_us", head: "p99 µs"},
			column{name: "requests", head: "requests/pair"},
			column{name: "server_us", head: "server CPU µs/pair"},
			column{name: "client_us", head: "client CPU µs/pair"},
			column{name: "hung", head: "hung", of: sum},
			column{name: "violations", head: "violations", of: sum},
		)
	}
	return nil
}
