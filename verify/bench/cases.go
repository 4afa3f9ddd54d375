package bench

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// Case is one question, asked of all libraries on servers of its own.
type Case struct {
	Name    string
	What    string // for people
	Store   string
	servers int // more than one are a quorum
	parts   []part
}

// part is one part of a case with one size, and its table.
type part struct {
	name           string // the first word is the section of the page
	title          string // of the table
	size           int
	columns, op    string
	base, baseHead string // of the ratio in the table

	rounds  float64 // for each round of the run
	length  time.Duration
	settle  time.Duration // what a turn does before that does not count
	clients int           // how many times each library is opened for it
	warm    bool          // each library has one turn more, before all others, that does not count
	awake   bool          // no processor sleeps meanwhile

	// Of parts whose workers are processes:
	processes int
	hold      time.Duration // how long each holds the lock

	// turn is one turn of one library.
	turn func(*Bench, context.Context, part, Peer, []Locker) (Values, error)
}

// Cases returns all cases in the order in which they run.
func Cases() []Case {
	free := own("free", "Free lock: one goroutine, one key, processors kept awake", 1, 100, freeColumns)
	free.base, free.baseHead, free.awake = floor, floor, true
	hot := []part{}
	for _, size := range []int{8, 64, 512} {
		title := fmt.Sprintf("Hot key: %d goroutines of one process", size)
		hot = append(hot, shared("hot", title, size, map[int]int{8: 300, 64: 400, 512: 800}[size], fairPeer))
	}
	strange := shared("stranger", "Hot key: 64 goroutines of one process, and one of another every 2 ms", 64, 500, "")
	strange.columns, strange.settle, strange.clients, strange.turn = strangerColumns, 0, 2, (*Bench).stranger
	all := []Case{
		{"free", "one goroutine, one key that nobody else wants", onRedis, 1, []part{free}},
		{"keys", "goroutines with a key each", onRedis, 1, keys()},
		{"hot", "many goroutines of one process on one key", onRedis, 1, hot},
		{"stranger", "another process beside 64 goroutines on one key", onRedis, 1, []part{strange}},
		{"processes", "four processes with eight goroutines each on one key", onRedis, 1,
			[]part{contested("processes", "Hot key: 4 processes × 8 goroutines", 500, fairPeer)}},
		{"line", "a long line of waiters, each a process of its own to the server", onRedis, 1,
			[]part{line(10), line(100), line(1000)}},
		{"held", "many leases that are held and renewed", onRedis, 1,
			// Each round of the last one takes a whole lease.
			[]part{leases(1000, 1500, 1), leases(10_000, 3000, 1), leases(100_000, 9000, 0.6)}},
		{"redlock", "a majority of five independent Redis servers", onRedis, 5, onMajority()},
	}
	all = append(all, Case{"service", "fencelock serve beside the library", onRedis, 1, service()})
	for _, s := range stores {
		all = append(all, Case{s.store, "a free lock, many keys, one key, four processes", s.store, 1, s.parts()})
	}
	return all
}

// keys are goroutines with a key each, and a PING beside them.
func keys() []part {
	parts := few()
	for _, size := range []int{8, 64, 512} {
		p := own("keys", fmt.Sprintf("%[1]d goroutines, %[1]d keys", size), size, 120, keysColumns).over(floor, floor)
		p.rounds = 1.5
		parts = append(parts, p)
	}
	pings := own("keys pings", "A PING each millisecond, of another process, beside 512 goroutines, 512 keys", 512, 300,
		pingColumns).over(floor, floor)
	pings.turn = (*Bench).ownKeysAndPings
	return append(parts, pings)
}

// few are a handful of goroutines, as most programs have them. Processors that sleep between two requests are
// what users have; processors that are kept awake show the work alone.
func few() (parts []part) {
	for _, kind := range []string{"idle", "awake"} {
		for _, size := range []int{1, 2, 4, 8, 16} {
			title := fmt.Sprintf("Goroutines with a key each: %d, processors %s", size, kind)
			p := own("keys few "+kind, title, size, 120, keysColumns).over(floor, floor)
			p.rounds, p.awake = 1, kind == "awake"
			parts = append(parts, p)
		}
	}
	return parts
}

// onMajority are the parts of a quorum.
func onMajority() []part {
	free := own("redlock free", "Free lock on a majority of five servers, processors kept awake", 1, 100, freeColumns)
	free.awake = true
	keys := own("redlock keys", "64 goroutines, as many keys, on a majority of five servers", 64, 300, keysColumns)
	hot := shared("redlock hot", "Hot key on a majority of five servers: 64 goroutines of one process", 64, 400,
		"redsync on a quorum")
	return warmed(free.over(quorumFloor, "PINGs"), keys, hot)
}

// parts are those of a store other than Redis. A free lock is measured when the server is
// warm: one in Java is slow until its code is compiled.
func (s sides) parts() []part {
	sizes := []int{32}
	if s.store == onPostgres {
		sizes = []int{32, 64, 512}
	}
	var all []part
	for _, size := range sizes {
		title := fmt.Sprintf("%[1]s: %[2]d goroutines, %[2]d keys", s.store, size)
		all = append(all, own(s.store+" keys", title, size, 300, keysColumns).over(s.floor, "floor"))
	}
	return warmed(append(all,
		own(s.store+" free", s.store+": free lock", 1, 100, storeFreeColumns).over(s.floor, "floor"),
		shared(s.store+" hot", s.store+": hot key, 64 goroutines of one process", 64, 400, s.peer),
		contested(s.store+" processes", s.store+": hot key, 4 processes × 8 goroutines", 400, s.peer))...)
}

// own is a part whose goroutines have a key each. A turn lasts ms.
func own(name, title string, size, ms int, columns string) part {
	p := shared(name, title, size, ms, "")
	p.columns, p.op, p.turn = columns, "pair", (*Bench).ownKeys
	if size == 1 {
		p.rounds = 3
	}
	return p
}

// shared is a part whose goroutines, all of one process, want one key.
func shared(name, title string, size, ms int, base string) part {
	const settle = 5 * time.Millisecond // the first pairs open connections
	return part{name: name, title: title, size: size, columns: hotColumns, op: "grant", rounds: 1,
		length: milliseconds(ms), settle: settle, clients: 1, turn: (*Bench).oneKey}.over(base, base)
}

// contested is a part with several processes that want one key.
func contested(name, title string, ms int, base string) part {
	return part{name: name, title: title, size: processes * goroutines, columns: betweenColumns, op: "grant", rounds: 1,
		length: milliseconds(ms), processes: processes, turn: (*Bench).contest}.over(base, base)
}

// line is a long line. Each waiter is a Client with connections of its own. Whoever gets
// the lock leaves at once and joins again behind the others.
func line(size int) part {
	p := shared("line", fmt.Sprintf("Line of %d waiters, each a Client of its own", size), size, 500, "")
	p.columns, p.op, p.clients, p.turn = lineColumns, "hand-over", size, (*Bench).lineUp
	p.settle = milliseconds(200 + size*6/5) // all are in line by then
	return p
}

// leases is a process that holds many leases of a length.
func leases(size, ms int, rounds float64) part {
	return part{name: "held", title: fmt.Sprintf("%d leases held, each renewed every third of it", size), size: size,
		columns: heldColumns, rounds: rounds, length: milliseconds(ms), turn: (*Bench).held}
}

// over has the table show ratios to a library.
func (p part) over(base, head string) part {
	p.base, p.baseHead = base, head
	return p
}

// warmed makes parts warm, but for those whose processes are new each time.
func warmed(parts ...part) []part {
	for i := range parts {
		p := &parts[i]
		p.warm = p.clients > 0
		if p.columns == hotColumns {
			p.settle = p.length / 2 // until all of them wait
		}
	}
	return parts
}

func milliseconds(n int) time.Duration { return time.Duration(n) * time.Millisecond }

// ownKeys is goroutines that have a key each.
func (b *Bench) ownKeys(ctx context.Context, p part, peer Peer, l []Locker) (Values, error) {
	return b.load(ctx, p, peer, newWorkers(l[0], p.size, false, func() (string, *guard) { return b.key(), new(guard) }))
}

// oneKey is goroutines of one process that all want one key.
func (b *Bench) oneKey(ctx context.Context, p part, peer Peer, l []Locker) (Values, error) {
	return b.load(ctx, p, peer, onOneKey(l[0], p.size, b.key(), new(guard)))
}

// stranger is a process that wants a key now and then, beside goroutines of another one
// that want it all the time. To the server, two clients are two processes.
func (b *Bench) stranger(ctx context.Context, p part, peer Peer, l []Locker) (Values, error) {
	ws := onOneKey(l[0], p.size+1, b.key(), new(guard))
	alone := ws.all[p.size]
	alone.locker, alone.process, alone.pause = l[1], 1, 2*time.Millisecond
	v, err := b.load(ctx, p, peer, ws)
	if err != nil {
		return nil, err
	}
	waits := slices.Sorted(slices.Values(alone.samples))
	v["stranger_p50_ms"], v["stranger_p99_ms"] = percentile(waits, 50)/1e6, percentile(waits, 99)/1e6
	v["stranger_grants"] = float64(alone.n)
	return v, nil
}

// lineUp is goroutines that all want one key, each with a client of its own.
func (b *Bench) lineUp(ctx context.Context, p part, peer Peer, l []Locker) (Values, error) {
	ws := onOneKey(nil, p.size, b.key(), new(guard))
	for i, w := range ws.all {
		w.locker, w.process = l[i], int64(i)
	}
	return b.load(ctx, p, peer, ws)
}

// load lets workers run for a turn.
func (b *Bench) load(ctx context.Context, p part, peer Peer, ws *workers) (Values, error) {
	ws.start()
	if err := pause(ctx, p.settle); err != nil {
		return nil, err
	}
	var elapsed time.Duration
	var all, handovers int64
	cost, err := b.measure(peer, func() (err error) {
		g := ws.all[0].guard
		begun, before, handed := time.Now(), ws.total.Load(), g.handovers.Load()
		ws.recording.Store(true)
		err = pause(ctx, b.length(p))
		ws.recording.Store(false)
		elapsed, handovers = time.Since(begun), g.handovers.Load()-handed
		if !ws.shared && err == nil { // what was begun is paid for, so it is finished first
			err = ws.stop()
		}
		all = ws.total.Load() - before
		return err
	})
	if err == nil && ws.shared {
		err = ws.stop()
	}
	if err != nil {
		return nil, err
	}
	saw := ws.saw()
	var grants int64
	for _, n := range saw.Grants {
		grants += n
	}
	v := saw.values()
	v["pairs_per_s"] = float64(grants) / elapsed.Seconds()
	v["handovers_per_s"] = float64(handovers) / elapsed.Seconds()
	v["allocs"], v["bytes"] = cost.mallocs/float64(all), cost.bytes/float64(all)
	v["violations"] = ws.violations()
	cost.per(float64(all), peer, v)
	return v, nil
}
