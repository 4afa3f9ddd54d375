package bench

import (
	"context"
	"errors"
	"runtime"
	"time"
)

// room is how many samples of a free lock are kept, so that what is counted as
// allocated is the library's own.
const room = 1 << 16

// free is one goroutine that locks and unlocks a key that nobody else wants, while
// the processors are kept awake. Turns are short and many.
func (b *Bench) free(ctx context.Context) (err error) {
	stop, err := b.keepAwake(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	samples := make([]time.Duration, 0, room)
	rs, err := b.rounds(ctx, "free", 1, 3*b.Rounds, floor, func(ctx context.Context, p Peer, l Locker) (Values, error) {
		var g guard
		key := b.key()
		warm := gather(l, 1, func(int) (string, *guard) { return key, &g })
		warm.workers[0].pairs, warm.workers[0].most = true, 20
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
			if err = pause(ctx, b.turn(200*time.Millisecond)); err != nil {
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
	if err != nil {
		return err
	}
	b.out.table("Free lock: one goroutine, one key, processors kept awake", rs,
		column{name: "p50_us", head: "p50 µs"},
		column{name: "p50_us", head: "× raw go-redis", base: floor},
		column{name: "p50_us", head: "best p50 µs", of: least},
		column{name: "p50_us", head: "× raw go-redis", base: floor, of: least},
		column{name: "p99_us", head: "p99 µs"},
		column{name: "requests", head: "requests/pair"},
		column{name: "server_us", head: "server CPU µs/pair"},
		column{name: "client_us", head: "client CPU µs/pair"},
		column{name: "allocs", head: "allocs/pair"},
		column{name: "bytes", head: "bytes/pair"},
		column{name: "hung", head: "hung", of: sum},
		column{name: "violations", head: "violations", of: sum},
	)
	return nil
}
