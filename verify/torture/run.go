// Package torture runs locks in many processes at once, breaks what they live on, and
// judges what came of it.
//
// A run keeps a folder with its history, and a report of what package check finds in it.
// [Run] needs a program that becomes a worker when it is started with an order in its
// environment: call [traffic.Worker] first thing in main, or in TestMain.
package torture

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fencelock/fencelock/verify/check"
	"github.com/fencelock/fencelock/verify/traffic"
)

// Options say what to torture and how.
type Options struct {
	Start   string // a store to start, see Stores; or
	URL     string // one that runs
	Service string // how to lock there, in Table; empty for what the store's name or URL says
	Table   traffic.Table

	For    time.Duration // of the faults; the end takes some seconds more
	Seed   uint64
	Faults string // names by commas, "all", or "none"
	TTL    time.Duration

	// Enough, if it is set, is asked each second after For whether the history says enough. Until
	// it does the faults go on, for six times For at most: a slow machine needs longer.
	Enough func([]traffic.Line) bool

	Dir string    // where the history goes; must exist
	Out io.Writer // nil for nowhere

	Workers int           // 0 for 4
	Epoch   time.Duration // after which other keys are used; 0 for 2 s
	Ways    []string      // nil for all
}

func (o Options) settled() Options {
	o.Workers = cmp.Or(o.Workers, 4)
	o.Epoch, o.TTL = cmp.Or(o.Epoch, 2*time.Second), cmp.Or(o.TTL, time.Second)
	if o.Out == nil {
		o.Out = io.Discard
	}
	return o
}

// Result is what came of a run.
type Result struct {
	*check.Verdict
	Dir, Name string
	Seed      uint64
	For, TTL  time.Duration
	Again     string // the command that runs it again, if it can be run
}

// run is one run under way.
type run struct {
	Options
	store   *store
	service traffic.Service
	history string // a folder

	begun    int64         // by traffic.Now
	lasted   time.Duration // of the faults
	rec      *traffic.Recorder
	workers  []*worker
	resource *traffic.Resource
}

// Run tortures one store, and judges. Violations are in the result; an error says that the
// run itself failed.
func Run(ctx context.Context, o Options) (*Result, error) {
	o = o.settled()
	var s *store
	var err error
	if o.Start != "" {
		s, err = begin(ctx, o.Start, filepath.Join(o.Dir, "store"))
	} else {
		s, err = reach(o.URL)
	}
	if err != nil {
		return nil, err
	}
	defer s.stop()
	if o.Service != "" {
		s.service = o.Service
	}
	service, ok := o.Table[s.service]
	if !ok {
		return nil, fmt.Errorf("nobody knows how to lock in %q", s.service)
	}
	if s.alone {
		o.Workers = 1
	}
	o.TTL = max(o.TTL, service.MinTTL)
	x := &run{Options: o, store: s, service: service, history: filepath.Join(o.Dir, "history")}
	if old, _ := filepath.Glob(filepath.Join(x.history, "w*.jsonl")); len(old) > 0 {
		return nil, fmt.Errorf("there is a history in %s already; take another folder", x.history)
	}
	if err := os.MkdirAll(x.history, 0o755); err != nil {
		return nil, err
	}
	if err := x.drive(ctx); err != nil {
		return nil, err
	}
	r, lines, err := x.judge()
	if err != nil {
		return nil, err
	}
	if o.Start != "" && o.Service == "" {
		r.Name = o.Start
	}
	r.Again = o.again()
	return r, r.writeReport(lines)
}

// Judge judges the history of Options.Dir, as of Options.Service.
func Judge(o Options) (*Result, error) {
	o = o.settled()
	service, ok := o.Table[o.Service]
	if !ok {
		names := slices.Sorted(maps.Keys(o.Table))
		return nil, fmt.Errorf("say with -service whose history it is: %s", strings.Join(names, ", "))
	}
	o.TTL = max(o.TTL, service.MinTTL)
	o.Seed = 0 // the history does not say
	x := &run{Options: o, service: service, history: o.Dir}
	below := filepath.Join(o.Dir, "history")
	if _, err := os.Stat(below); err == nil {
		x.history = below
	}
	r, _, err := x.judge()
	return r, err
}

// judge judges the history.
func (x *run) judge() (*Result, []traffic.Line, error) {
	lines, err := traffic.ReadAll(x.history)
	if err != nil {
		return nil, nil, err
	}
	verdict, err := check.Judge(lines, check.Options{Traits: x.service.Traits, TTL: x.TTL})
	if err != nil {
		return nil, nil, fmt.Errorf("the history in %s makes no sense: %w", x.history, err)
	}
	return &Result{
		Verdict: verdict, Dir: x.Dir, Name: x.service.Name, Seed: x.Seed, For: x.lasted, TTL: x.TTL,
	}, lines, nil
}

// drive runs the traffic and the faults, and looks at the store in the end. The history is kept in
// memory meanwhile, where that can be: workers that wait for a slow disk would be taken for waiters
// that the store lets wait.
func (x *run) drive(ctx context.Context) (err error) {
	mounted, err := mountDisk(x.history)
	if err != nil {
		return fmt.Errorf("a disk for the history: %w", err)
	}
	if mounted {
		defer func() { err = errors.Join(err, leaveDisk(x.history, "*")) }()
	}
	x.rec, err = traffic.NewRecorder(filepath.Join(x.history, "run.jsonl"), "")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, x.rec.Close()) }()
	if x.resource, err = traffic.NewResource(x.rec); err != nil {
		return err
	}
	defer x.resource.Close()
	x.begun = traffic.Now()
	defer func() {
		for _, one := range x.workers {
			one.discard()
		}
	}()
	if err := x.makeWorkers(); err != nil {
		return err
	}
	return x.runAll(ctx)
}

// runAll runs the workers, breaks what they live on, and ends them.
func (x *run) runAll(ctx context.Context) error {
	w := x.world()
	faults, err := x.faults(w)
	if err != nil {
		return err
	}
	if err := x.firstUse(ctx); err != nil {
		return err
	}
	for _, w := range x.workers {
		if err := w.start(); err != nil {
			return err
		}
	}

	fmt.Fprintf(x.Out, "%s: faults for %v\n", x.service.Name, x.For)
	going, end := context.WithTimeout(ctx, 6*x.For)
	defer end()
	var watch sync.WaitGroup
	begun := time.Now()
	watch.Go(func() {
		x.untilEnough(going)
		x.lasted = time.Since(begun)
		end()
	})
	err = w.nemesis(going, faults, x.Seed)
	end()
	watch.Wait()
	if err != nil {
		return err
	}
	if err := x.finish(ctx); err != nil {
		return err
	}
	x.resource.Final()
	if x.store.alone || ctx.Err() != nil {
		return ctx.Err()
	}
	return x.inspect(ctx)
}

// untilEnough returns when the faults have lasted for long enough, or ctx ends.
func (x *run) untilEnough(ctx context.Context) {
	for again := traffic.Sleep(ctx, x.For); again && x.Enough != nil; again = traffic.Sleep(ctx, time.Second) {
		if lines, err := traffic.ReadAll(x.history); err == nil && x.Enough(lines) {
			return
		}
	}
}

// makeWorkers makes workers, which do not run yet.
func (x *run) makeWorkers() (err error) {
	for i := range x.Workers {
		one := &worker{number: i + 1, rec: x.rec, order: traffic.Order{
			Service: x.store.service, URL: x.store.url, TTL: x.TTL, Seed: x.Seed, Begun: x.begun, Dir: x.history,
			Resource: x.resource.Addr(), Epoch: x.Epoch, Ways: x.Ways,
		}}
		x.workers = append(x.workers, one)
		if !x.store.proxies {
			continue
		}
		if one.order.URL, one.order.Via, one.proxies, err = through(x.store.url); err != nil {
			return err
		}
	}
	return nil
}

// world is what can be broken.
func (x *run) world() *world {
	w := x.store.world
	w.ttl, w.rec = x.TTL, x.rec
	for _, one := range x.workers {
		w.victims = append(w.victims, one)
	}
	if x.store.cluster != nil {
		w.hashSlot = func(rng *rand.Rand) (func() error, error) {
			way := traffic.Ways()[rng.IntN(len(traffic.Ways()))]
			key := x.workers[0].order.Key(way, rng.IntN(traffic.Keys))
			return x.store.moveSlot(rng, "fencelock:{"+key+"}")
		}
	}
	return &w
}

// faults are those that were asked for and that w has something for.
func (x *run) faults(w *world) ([]fault, error) {
	faults, refused, err := w.find(x.Faults)
	if err != nil {
		return nil, err
	}
	if len(refused) > 0 && (x.URL != "" || len(faults) == 0) {
		return nil, fmt.Errorf("not here: %s", strings.Join(refused, "; "))
	}
	for _, r := range refused {
		fmt.Fprintf(x.Out, "%s: not here: %s\n", x.service.Name, r)
	}
	return faults, nil
}

// finish lets whoever waits behind somebody that is gone get the lock, now that all is
// healed, and ends the workers.
func (x *run) finish(ctx context.Context) error {
	traffic.Sleep(ctx, x.TTL+x.service.Lag+time.Second)
	for _, w := range x.workers {
		w.askToEnd()
	}
	for _, w := range x.workers {
		if err := w.finish(30 * time.Second); err != nil {
			return err
		}
	}
	return nil
}
