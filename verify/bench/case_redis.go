package bench

import (
	"context"
	"errors"
	"slices"
	"time"
)

// awake does a part while the processors are kept awake.
func (b *Bench) awake(ctx context.Context, part func() error) (err error) {
	stop, err := b.keepAwake(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	return part()
}

func (b *Bench) free(ctx context.Context) error {
	return b.awake(ctx, func() error {
		return b.freePart(ctx, "free", 1, 3*b.Rounds, 100*time.Millisecond)
	})
}

func (b *Bench) keys(ctx context.Context) error {
	for _, size := range []int{8, 64, 512} {
		if err := b.keysPart(ctx, "keys", size, (3*b.Rounds+1)/2, 120*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

func (b *Bench) hot(ctx context.Context) error {
	for _, turn := range []struct {
		size   int
		length time.Duration
	}{{8, 300 * time.Millisecond}, {64, 400 * time.Millisecond}, {512, 800 * time.Millisecond}} {
		if err := b.hotPart(ctx, "hot", turn.size, b.Rounds, turn.length); err != nil {
			return err
		}
	}
	return nil
}

// stranger is a process that wants a key now and then, beside 64 goroutines of another
// one that want it all the time. The two are two clients with connections of their own:
// to the server they are two processes.
func (b *Bench) stranger(ctx context.Context) error {
	const size = 64
	return b.rounds(ctx, "stranger", size, b.Rounds, func(ctx context.Context, p Peer, l Locker) (_ Values, err error) {
		other, err := p.Open(b.env())
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, other.Close()) }()
		var g guard
		key := b.key()
		c := gather(l, size+1, func(int) (string, *guard) { return key, &g })
		alone := c.workers[size]
		alone.locker, alone.process, alone.pause = other, 1, 2*time.Millisecond
		v, err := b.crowdTurn(ctx, p, c, &g, 0, 500*time.Millisecond)
		if err != nil {
			return nil, err
		}
		waits := slices.Sorted(slices.Values(alone.samples))
		v["stranger_p50_ms"], v["stranger_p99_ms"] = percentile(waits, 50)/1e6, percentile(waits, 99)/1e6
		v["stranger_most_ms"], v["stranger_grants"] = percentile(waits, 100)/1e6, float64(alone.n)
		return v, nil
	})
}

// line is a long line: each waiter is a Client of its own, with connections of its own.
// When one gets the lock it leaves at once and joins again behind the others, so that
// each hand-over is one leaving and one joining with all others in line.
func (b *Bench) line(ctx context.Context) error {
	for _, size := range []int{10, 100, 1000} {
		if b.Short && size == 1000 {
			size = 500
		}
		if err := b.lineOf(ctx, size); err != nil {
			return err
		}
	}
	return nil
}

func (b *Bench) lineOf(ctx context.Context, size int) (err error) {
	peers := taking("line", size, b.Peers)
	lockers := make([][]Locker, len(peers))
	defer func() {
		for _, all := range lockers {
			errs := make([]error, len(all))
			_ = inParallel(len(all), func(i int) error {
				errs[i] = all[i].Close()
				return nil
			})
			err = errors.Join(append(errs, err)...)
		}
	}()
	for i, p := range peers {
		for range size {
			l, err := p.Open(b.env())
			if err != nil {
				return err
			}
			lockers[i] = append(lockers[i], l)
		}
	}
	return b.each(ctx, "line", size, b.Rounds, peers, func(ctx context.Context, i int) (Values, error) {
		var g guard
		key := b.key()
		c := gather(nil, size, func(int) (string, *guard) { return key, &g })
		for n, w := range c.workers {
			w.locker, w.process = lockers[i][n], int64(n)
		}
		// All are in line by then.
		settle := 200*time.Millisecond + time.Duration(size)*1200*time.Microsecond
		return b.crowdTurn(ctx, peers[i], c, &g, settle, 500*time.Millisecond)
	})
}
