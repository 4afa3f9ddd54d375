package bench

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"
)

const (
	processes  = 4
	goroutines = 8 // of each
)

// contended is what one process saw of a contended key.
type contendedBy struct {
	Grants           []int64 // of each goroutine
	Waits, Crossings []time.Duration
	CPU              time.Duration
}

// processes is several processes with several goroutines each that want one key.
// Their guard lies in memory that they share.
func (b *Bench) processes(ctx context.Context) error {
	if err := b.processesPart(ctx, "processes", b.Rounds, 500*time.Millisecond, 0); err != nil {
		return err
	}
	return b.awake(ctx, func() error {
		return b.processesPart(ctx, "rests", b.Rounds, 400*time.Millisecond, resting)
	})
}

// resting is what goroutines do between two locks where they do not ask again at once. A
// library that polls hands over between processes only what its last holder has not
// taken back by then.
const resting = 2 * time.Millisecond

func (b *Bench) processesPart(ctx context.Context, part string, rounds int, length, rest time.Duration) error {
	size := processes * goroutines
	peers := taking(part, size, b.Peers)
	return b.each(ctx, part, size, rounds, peers, func(ctx context.Context, i int) (Values, error) {
		return b.contest(ctx, peers[i], length, rest)
	})
}

// contest is one turn: the children are started, let loose together and stopped.
func (b *Bench) contest(ctx context.Context, p Peer, length, rest time.Duration) (_ Values, err error) {
	key := b.key()
	file := filepath.Join(b.dir, "guard-"+key)
	g, unmap, err := sharedGuard(file)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, unmap()) }()
	children, err := b.contenders(ctx, p, key, file, rest)
	defer func() {
		for _, c := range children {
			c.kill()
		}
	}()
	switch {
	case errors.Is(err, errHangs):
		return Values{"hung": 1}, nil
	case err != nil:
		return nil, err
	}
	var grants, passed, crossed int64
	var elapsed time.Duration
	cost, err := b.price(p, func() error {
		start := time.Now()
		if err := nextOfAll(children); err != nil {
			return err
		}
		err := pause(ctx, b.turn(length))
		elapsed = time.Since(start)
		grants, passed, crossed = g.grants.Load(), g.passed.Load(), g.crossed.Load()
		return err
	})
	if err != nil {
		return nil, err
	}
	g.over.Store(true)
	saw, err := reports(children)
	if err != nil {
		return nil, err
	}
	children = nil
	v := Values{
		"handovers_per_s": float64(passed) / elapsed.Seconds(),
		"crossings_per_s": float64(crossed) / elapsed.Seconds(),
		"crossing_p50_us": percentile(saw.Crossings, 50) / 1e3,
		"grants_per_s":    float64(grants) / elapsed.Seconds(),
		"jain":            jain(saw.Grants),
		"p50_ms":          percentile(saw.Waits, 50) / 1e6, "p99_ms": percentile(saw.Waits, 99) / 1e6,
		"violations": g.violations(), "hung": 0,
	}
	cost.per(float64(grants), p, v)
	v["client_us"] = 1e6 * saw.CPU.Seconds() / float64(grants)
	return v, nil
}

// contenders starts the children of one turn and waits until all are ready. It returns
// those that it started, also beside an error.
func (b *Bench) contenders(ctx context.Context, p Peer, key, file string, rest time.Duration) ([]*child, error) {
	var children []*child
	for i := range processes {
		env := b.env()
		env.Process = int64(i)
		c, err := b.startChild(ctx, job{
			Do: "contend", Peer: p.Name, Env: env,
			Process: int64(i), Workers: goroutines, Rest: rest, Key: key, Guard: file,
		})
		if err != nil {
			return children, err
		}
		children = append(children, c)
	}
	var ready string
	for _, c := range children {
		if err := c.hear(&ready, 15*time.Second); err != nil {
			return children, err
		}
	}
	return children, nil
}

func nextOfAll(children []*child) error {
	for _, c := range children {
		if err := c.next(); err != nil {
			return err
		}
	}
	return nil
}

// reports stops the children and adds up what they saw, sorted.
func reports(children []*child) (all contendedBy, err error) {
	if err := nextOfAll(children); err != nil {
		return all, err
	}
	for _, c := range children {
		var saw contendedBy
		if err := c.hear(&saw, time.Minute); err != nil {
			return all, err
		}
		all.Grants = append(all.Grants, saw.Grants...)
		all.Waits = append(all.Waits, saw.Waits...)
		all.Crossings = append(all.Crossings, saw.Crossings...)
		all.CPU += saw.CPU
	}
	for _, c := range children {
		err = errors.Join(err, c.end())
	}
	slices.Sort(all.Waits)
	slices.Sort(all.Crossings)
	return all, err
}

// contend is what each child does.
func contend(j job, p Peer, say func(any) error, told func() error) (err error) {
	g, unmap, err := sharedGuard(j.Guard)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unmap()) }()
	l, err := p.Open(j.Env)
	if err != nil {
		return err
	}
	// The connections are there before the others wait for them, as many as all workers need
	// at once: a new session of a database takes it milliseconds of processor time.
	own := fmt.Sprintf("%s-%d", j.Key, j.Process)
	warm := gather(l, j.Workers, func(int) (string, *guard) { return own, new(guard) })
	for _, w := range warm.workers {
		w.pairs, w.most = true, 1
	}
	warm.begin()
	if _, err := warm.settle(); err != nil { // some that only ask now and then may be late
		return err
	}
	if err := errors.Join(say("ready"), told()); err != nil {
		return err
	}
	c := gather(l, j.Workers, func(int) (string, *guard) { return j.Key, g })
	for _, w := range c.workers {
		w.process, w.clock, w.pause = j.Process, true, j.Rest
	}
	before := cpuTime()
	c.begin()
	if err := told(); err != nil {
		return err
	}
	used := cpuTime() - before
	if err := c.halt(); err != nil {
		return err
	}
	saw := contendedBy{Grants: c.each(), Waits: c.sorted(), CPU: used}
	for _, w := range c.workers {
		saw.Crossings = append(saw.Crossings, w.crossings...)
	}
	return errors.Join(say(saw), l.Close())
}
