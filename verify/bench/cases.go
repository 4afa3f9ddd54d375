package bench

import (
	"context"
	"errors"
	"slices"
	"time"
)

// Case is one question, asked of all libraries on a server of its own.
type Case struct {
	Name    string
	What    string // for people
	Store   string
	servers int // of a quorum
	run     func(*Bench, context.Context) error
}

// Cases returns all cases in the order in which they run.
func Cases() []Case {
	all := []Case{
		{"free", "one goroutine, one key that nobody else wants", onRedis, 1, (*Bench).free},
		{"keys", "many goroutines, a key for each", onRedis, 1, (*Bench).ownKeys},
		{"hot", "many goroutines of one process on one key", onRedis, 1, (*Bench).hot},
		{"stranger", "another process beside 64 goroutines on one key", onRedis, 1, (*Bench).stranger},
		{"processes", "four processes with eight goroutines each on one key", onRedis, 1, (*Bench).processes},
		{"line", "a long line of waiters, each a process of its own to the server", onRedis, 1, (*Bench).line},
		{"held", "many leases that are held and renewed", onRedis, 1, (*Bench).held},
		{"redlock", "a majority of five independent Redis servers", onRedis, 5, (*Bench).redlock},
	}
	for _, store := range storeOrder {
		all = append(all, Case{store, "a free lock, many keys, one key, four processes", store, 1, storeCase(store)})
	}
	return all
}

// load is goroutines of this process that lock and unlock.
type load struct {
	part       string
	goroutines int
	shared     bool // all want one key; otherwise each has its own
	rounds     int
	length     time.Duration // of a turn
}

// run gives each library its turns with a load.
func (b *Bench) run(ctx context.Context, l load) error {
	turn := func(ctx context.Context, p Peer, locker Locker) (Values, error) {
		shared, key := new(guard), b.key()
		ws := newWorkers(locker, l.goroutines, func(int) (string, *guard) {
			if l.shared {
				return key, shared
			}
			return b.key(), new(guard)
		})
		ws.shared = l.shared
		settle := 5 * time.Millisecond // the first pairs open connections
		if l.shared && b.warm {
			settle = l.length / 2 // until all of them wait
		}
		return b.turn(ctx, p, ws, settle, l.length)
	}
	return b.rounds(ctx, l.part, l.goroutines, l.rounds, turn)
}

// turn lets workers run. What they do before settle has passed does not count.
func (b *Bench) turn(ctx context.Context, p Peer, ws *workers, settle, length time.Duration) (Values, error) {
	if b.Short {
		length /= 3
	}
	ws.start()
	if err := pause(ctx, settle); err != nil {
		return nil, err
	}
	var elapsed time.Duration
	var all int64
	var hung int
	cost, err := b.measure(p, func() (err error) {
		begun, before := time.Now(), ws.total.Load()
		ws.recording.Store(true)
		err = pause(ctx, length)
		ws.recording.Store(false)
		elapsed = time.Since(begun)
		if !ws.shared && err == nil { // what was begun is paid for, so it is finished first
			hung, err = ws.stop()
		}
		all = ws.total.Load() - before
		return err
	})
	if err == nil && ws.shared {
		_, err = ws.stop()
	}
	if err != nil {
		return nil, err
	}
	samples := ws.sorted()
	v := Values{
		"pairs_per_s":     float64(ws.grants()) / elapsed.Seconds(),
		"handovers_per_s": float64(ws.handovers()) / elapsed.Seconds(),
		"jain":            jain(ws.each()),
		"p50_us":          percentile(samples, 50) / 1e3, "p99_us": percentile(samples, 99) / 1e3,
		"allocs": cost.mallocs / float64(all), "bytes": cost.bytes / float64(all),
		"violations": ws.violations(), "hung": float64(hung),
	}
	cost.per(float64(all), p, v)
	return v, nil
}

func (b *Bench) free(ctx context.Context) error {
	return b.awake(ctx, func() error {
		return b.run(ctx, load{"free", 1, false, 3 * b.Rounds, 100 * time.Millisecond})
	})
}

func (b *Bench) ownKeys(ctx context.Context) error {
	for _, size := range []int{8, 64, 512} {
		if err := b.run(ctx, load{"keys", size, false, (3*b.Rounds + 1) / 2, 120 * time.Millisecond}); err != nil {
			return err
		}
	}
	return nil
}

func (b *Bench) hot(ctx context.Context) error {
	for _, l := range []load{
		{"hot", 8, true, b.Rounds, 300 * time.Millisecond},
		{"hot", 64, true, b.Rounds, 400 * time.Millisecond},
		{"hot", 512, true, b.Rounds, 800 * time.Millisecond},
	} {
		if err := b.run(ctx, l); err != nil {
			return err
		}
	}
	return nil
}

// stranger is a process that wants a key now and then, beside 64 goroutines of another
// one that want it all the time. To the server, two clients are two processes.
func (b *Bench) stranger(ctx context.Context) error {
	const size = 64
	return b.rounds(ctx, "stranger", size, b.Rounds, func(ctx context.Context, p Peer, l Locker) (_ Values, err error) {
		other, err := p.Open(b.env())
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, other.Close()) }()
		g, key := new(guard), b.key()
		ws := newWorkers(l, size+1, func(int) (string, *guard) { return key, g })
		ws.shared = true
		alone := ws.all[size]
		alone.locker, alone.process, alone.pause = other, 1, 2*time.Millisecond
		v, err := b.turn(ctx, p, ws, 0, 500*time.Millisecond)
		if err != nil {
			return nil, err
		}
		waits := slices.Sorted(slices.Values(alone.samples))
		v["stranger_p50_us"], v["stranger_p99_us"] = percentile(waits, 50)/1e3, percentile(waits, 99)/1e3
		v["stranger_grants"] = float64(alone.n)
		return v, nil
	})
}

// line is a long line. Each waiter is a Client with connections of its own. Whoever gets
// the lock leaves at once and joins again behind the others.
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
	peers := participants("line", size, b.Peers)
	lockers := make([][]Locker, len(peers))
	defer func() {
		for _, l := range slices.Concat(lockers...) {
			err = errors.Join(err, l.Close())
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
		g, key := new(guard), b.key()
		ws := newWorkers(nil, size, func(int) (string, *guard) { return key, g })
		ws.shared = true
		for n, w := range ws.all {
			w.locker, w.process = lockers[i][n], int64(n)
		}
		// All are in line by then.
		settle := 200*time.Millisecond + time.Duration(size)*1200*time.Microsecond
		return b.turn(ctx, peers[i], ws, settle, 500*time.Millisecond)
	})
}

// storeCase is a free lock, many keys at once and one key that all want, on a store
// other than Redis.
func storeCase(store string) func(*Bench, context.Context) error {
	return func(b *Bench, ctx context.Context) error {
		b.warm = true // a server in Java is slow until its code is compiled
		defer func() { b.warm = false }()
		for _, l := range []load{
			{storePart(store, "keys"), 32, false, b.Rounds, 300 * time.Millisecond},
			{storePart(store, "free"), 1, false, 3 * b.Rounds, 100 * time.Millisecond},
			{storePart(store, "hot"), 64, true, b.Rounds, 400 * time.Millisecond},
		} {
			if err := b.run(ctx, l); err != nil {
				return err
			}
		}
		return b.processesPart(ctx, storePart(store, "processes"), 400*time.Millisecond)
	}
}

// redlock is a majority of independent servers.
func (b *Bench) redlock(ctx context.Context) error {
	if err := initialiseQuorum(ctx, b.env()); err != nil {
		return err
	}
	b.warm = true
	defer func() { b.warm = false }()
	if err := b.awake(ctx, func() error {
		return b.run(ctx, load{"redlock free", 1, false, 3 * b.Rounds, 100 * time.Millisecond})
	}); err != nil {
		return err
	}
	if err := b.run(ctx, load{"redlock keys", 64, false, b.Rounds, 300 * time.Millisecond}); err != nil {
		return err
	}
	return b.run(ctx, load{"redlock hot", 64, true, b.Rounds, 400 * time.Millisecond})
}
