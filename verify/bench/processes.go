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

// contention is what one process saw of a contended key.
type contention struct {
	Grants           []int64 // of each goroutine
	Waits, Crossings []time.Duration
	CPU              time.Duration
}

// processes is several processes with several goroutines each that want one key.
// Their guard lies in memory that they share.
func (b *Bench) processes(ctx context.Context) error {
	return b.processesPart(ctx, "processes", 500*time.Millisecond)
}

func (b *Bench) processesPart(ctx context.Context, part string, length time.Duration) error {
	size := processes * goroutines
	peers := participants(part, size, b.Peers)
	return b.each(ctx, part, size, b.Rounds, peers, func(ctx context.Context, i int) (Values, error) {
		return b.contest(ctx, peers[i], length)
	})
}

// contest is one turn: the children are started, run together and are stopped.
func (b *Bench) contest(ctx context.Context, p Peer, length time.Duration) (_ Values, err error) {
	if b.Short {
		length /= 3
	}
	key := b.key()
	file := filepath.Join(b.dir, "guard-"+key)
	g, unmap, err := sharedGuard(file)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, unmap()) }()
	children, err := b.contenders(ctx, p, key, file)
	defer func() {
		for _, c := range children {
			c.kill()
		}
	}()
	switch {
	case errors.Is(err, errHung):
		return Values{"hung": 1}, nil
	case err != nil:
		return nil, err
	}
	var grants, handovers, crossings int64
	var elapsed time.Duration
	cost, err := b.measure(p, func() error {
		start := time.Now()
		if err := continueAll(children); err != nil {
			return err
		}
		err := pause(ctx, length)
		elapsed = time.Since(start)
		grants, handovers, crossings = g.grants.Load(), g.handovers.Load(), g.crossings.Load()
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
		"handovers_per_s": float64(handovers) / elapsed.Seconds(),
		"crossings_per_s": float64(crossings) / elapsed.Seconds(),
		"crossing_p50_us": percentile(saw.Crossings, 50) / 1e3,
		"jain":            jain(saw.Grants),
		"p50_us":          percentile(saw.Waits, 50) / 1e3, "p99_us": percentile(saw.Waits, 99) / 1e3,
		"violations": g.violations(), "hung": 0,
	}
	cost.client = saw.CPU.Seconds()
	cost.per(float64(grants), p, v)
	return v, nil
}

// contenders starts the children of one turn and waits until all are ready. It returns
// those that it started, also beside an error.
func (b *Bench) contenders(ctx context.Context, p Peer, key, file string) ([]*child, error) {
	var children []*child
	for i := range processes {
		env := b.env()
		env.Process = int64(i)
		c, err := b.startChild(ctx, job{Do: "contend", Peer: p.Name, Env: env, Key: key, Guard: file})
		if err != nil {
			return children, err
		}
		children = append(children, c)
	}
	var ready string
	for _, c := range children {
		if err := c.receive(&ready, 15*time.Second); err != nil {
			return children, err
		}
	}
	return children, nil
}

func continueAll(children []*child) error {
	for _, c := range children {
		if err := c.proceed(); err != nil {
			return err
		}
	}
	return nil
}

// reports stops the children and adds up what they saw, sorted.
func reports(children []*child) (all contention, err error) {
	if err := continueAll(children); err != nil {
		return all, err
	}
	for _, c := range children {
		var saw contention
		if err := c.receive(&saw, time.Minute); err != nil {
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
func contend(j job, p Peer, parent *parent) (err error) {
	g, unmap, err := sharedGuard(j.Guard)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unmap()) }()
	l, err := p.Open(j.Env)
	if err != nil {
		return err
	}
	// As many connections as the goroutines need are opened before the turn.
	warm := make(chan error, goroutines)
	for i := range goroutines {
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			warm <- l.Do(ctx, fmt.Sprintf("%s-%d-%d", j.Key, j.Env.Process, i), func(int64) {})
		}()
	}
	for range goroutines {
		if err := <-warm; err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
	}
	if err := errors.Join(parent.send("ready"), parent.wait()); err != nil {
		return err
	}
	ws := newWorkers(l, goroutines, func(int) (string, *guard) { return j.Key, g })
	ws.shared = true
	ws.recording.Store(true)
	for _, w := range ws.all {
		w.process, w.clock = j.Env.Process, true
	}
	before := cpuTime()
	ws.start()
	if err := parent.wait(); err != nil {
		return err
	}
	used := cpuTime() - before
	if _, err := ws.stop(); err != nil {
		return err
	}
	saw := contention{Grants: ws.each(), Waits: ws.sorted(), CPU: used}
	for _, w := range ws.all {
		saw.Crossings = append(saw.Crossings, w.crossings...)
	}
	return errors.Join(parent.send(saw), l.Close())
}
