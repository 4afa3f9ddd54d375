package bench

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"
)

const (
	processes  = 4
	goroutines = 8 // of each
)

// contest is a turn of several processes with several goroutines each that want one key.
// Their guard lies in memory that they share. The children are started, run together and
// are stopped.
func (b *Bench) contest(ctx context.Context, p part, peer Peer, _ []Locker) (Values, error) {
	ctx, cancel := context.WithTimeout(ctx, turnTimeout)
	defer cancel()
	key := b.key()
	file := filepath.Join(b.dir, "guard-"+key)
	g, err := sharedGuard(file)
	if err != nil {
		return nil, err
	}
	var children []*child
	for i := range processes {
		env := b.env()
		env.Process = int64(i)
		c, err := b.startChild(ctx, job{Do: "contend", Peer: peer.Name, Env: env, Key: key, Guard: file})
		if err != nil {
			return nil, err
		}
		children = append(children, c)
	}
	var ready string
	for _, c := range children {
		if err := c.receive(&ready); err != nil {
			return nil, err
		}
	}
	var grants, handovers, crossings float64
	var elapsed time.Duration
	cost, err := b.measure(peer, func() error {
		start := time.Now()
		if err := continueAll(children); err != nil {
			return err
		}
		err := pause(ctx, b.length(p))
		elapsed = time.Since(start)
		grants, handovers, crossings = float64(g.grants.Load()), float64(g.handovers.Load()), float64(g.crossings.Load())
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
	v := saw.values()
	v["handovers_per_s"], v["crossings_per_s"] = handovers/elapsed.Seconds(), crossings/elapsed.Seconds()
	v["violations"] = g.violations()
	cost.client = saw.CPU.Seconds()
	cost.per(grants, peer, v)
	return v, nil
}

func continueAll(children []*child) error {
	for _, c := range children {
		if err := c.proceed(); err != nil {
			return err
		}
	}
	return nil
}

// reports stops the children and adds up what they saw.
func reports(children []*child) (all sight, err error) {
	if err := continueAll(children); err != nil {
		return all, err
	}
	for _, c := range children {
		var saw sight
		if err := c.receive(&saw); err != nil {
			return all, err
		}
		all.Grants = append(all.Grants, saw.Grants...)
		all.Samples = append(all.Samples, saw.Samples...)
		all.Crossings = append(all.Crossings, saw.Crossings...)
		all.CPU += saw.CPU
	}
	for _, c := range children {
		err = errors.Join(err, c.end())
	}
	return all, err
}

// contend is what each child does.
func contend(j job, l Locker, parent *parent) error {
	g, err := sharedGuard(j.Guard)
	if err != nil {
		return err
	}
	// As many connections as the goroutines need are opened before the turn.
	if err := inParallel(goroutines, func(i int) error {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		return l.Do(ctx, fmt.Sprintf("%s-%d-%d", j.Key, j.Env.Process, i), func(int64) {})
	}); err != nil {
		return err
	}
	if err := errors.Join(parent.send("ready"), parent.wait()); err != nil {
		return err
	}
	ws := onOneKey(l, goroutines, j.Key, g)
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
	if err := ws.stop(); err != nil {
		return err
	}
	saw := ws.saw()
	saw.CPU = used
	return parent.send(saw)
}
