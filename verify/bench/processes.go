package bench

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	process "github.com/fencelock/fencelock/internal/worker"
)

const (
	processes  = 4 // in most cases
	goroutines = 8 // of each

	// contestTimeout is how long a turn of processes may take, from their start to their end.
	contestTimeout = time.Minute
)

// contest is a turn of several processes with several goroutines each that want one key.
// Their guard lies in memory that they share. The children are started, run together and
// are stopped.
func (b *Bench) contest(ctx context.Context, p part, peer Peer, _ []Locker) (Values, error) {
	ctx, cancel := context.WithTimeout(ctx, contestTimeout)
	defer cancel()
	j := job{Peer: peer.Name, Env: b.env(), Key: b.key(), Goroutines: p.size / p.processes, Hold: p.hold}
	j.Guard = filepath.Join(b.dir, "guard-"+j.Key)
	g, err := sharedGuard(j.Guard)
	if err != nil {
		return nil, err
	}
	children := make([]*child, p.processes)
	for i := range children {
		j.Env.Process = int64(i)
		if children[i], err = startChild(ctx, j); err != nil {
			return nil, err
		}
	}
	all := func(f func(*child) error) error {
		for _, c := range children {
			if err := f(c); err != nil {
				return err
			}
		}
		return nil
	}
	if err := all(func(c *child) error { return c.receive(new(string)) }); err != nil {
		return nil, err
	}
	var grants, handovers, crossings float64
	var elapsed time.Duration
	cost, err := b.measure(peer, func() error {
		begun := time.Now()
		if err := all((*child).proceed); err != nil {
			return err
		}
		err := pause(ctx, b.length(p))
		elapsed = time.Since(begun)
		grants, handovers = float64(g.grants.Load()), float64(g.handovers.Load())
		crossings = float64(g.crossings.Load())
		return err
	})
	if err != nil {
		return nil, err
	}
	g.over.Store(true)
	var saw sight
	err = errors.Join(all((*child).proceed), all(func(c *child) error {
		var one sight
		err := c.receive(&one)
		saw.add(one)
		return err
	}), all(func(c *child) error { return c.cmd.Wait() }))
	v := saw.values()
	v["handovers_per_s"], v["crossings_per_s"] = handovers/elapsed.Seconds(), crossings/elapsed.Seconds()
	v["violations"] = g.violations()
	cost.client = saw.CPU.Seconds()
	cost.per(grants, peer, v)
	return v, err
}

// contend is what each child does.
func contend(j job, peer Peer) error {
	g, err := sharedGuard(j.Guard)
	if err != nil {
		return err
	}
	l, err := peer.Open(j.Env)
	if err != nil {
		return err
	}
	// As many connections as the goroutines need are opened before the turn.
	if err := inParallel(j.Goroutines, func(i int) error {
		return l.Do(context.Background(), fmt.Sprintf("%s-%d-%d", j.Key, j.Env.Process, i), func(int64) {})
	}); err != nil {
		return err
	}
	if err := report("ready"); err != nil {
		return err
	}
	process.Told()
	ws := onOneKey(l, j.Goroutines, j.Key, g)
	ws.recording.Store(true)
	for _, w := range ws.all {
		w.process, w.clock, w.hold = j.Env.Process, true, j.Hold
	}
	before := cpuTime()
	ws.start()
	process.Told()
	used := cpuTime() - before
	if err := ws.stop(); err != nil {
		return err
	}
	saw := ws.saw()
	saw.CPU = used
	return errors.Join(report(saw), l.Close())
}
