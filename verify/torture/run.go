package torture

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fencelock/fencelock/verify/check"
	"github.com/fencelock/fencelock/verify/fault"
	"github.com/fencelock/fencelock/verify/report"
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

	Dir     string   // where the history goes; must exist
	Command []string // a program that becomes a worker; this very one if empty
	Out     io.Writer

	Workers, Clients, Users, Keys int           // 0 for 4, 2, 2, 2
	Epoch                         time.Duration // after which other keys are used; 0 for 2 s
	Ways                          []string      // nil for all
	Again                         string        // the command that runs it again, for the report
}

func (o Options) settled() Options {
	set := func(n *int, to int) {
		if *n == 0 {
			*n = to
		}
	}
	set(&o.Workers, 4)
	set(&o.Clients, 2)
	set(&o.Users, 2)
	set(&o.Keys, 2)
	if o.Epoch == 0 {
		o.Epoch = 2 * time.Second
	}
	if o.TTL == 0 {
		o.TTL = time.Second
	}
	if o.Table == nil {
		o.Table = traffic.Schemes()
	}
	if o.Out == nil {
		o.Out = io.Discard
	}
	return o
}

// Result is what came of a run.
type Result struct {
	*check.Verdict
	Dir, Report string
	Name        string
	Seed        uint64
	For, TTL    time.Duration
}

// Run tortures one store, and judges. Violations are in the result; an error says that the
// run itself failed.
func Run(ctx context.Context, o Options) (*Result, error) {
	o = o.settled()
	if len(o.Command) == 0 {
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		o.Command = []string{self}
	}
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
	s.ours = o.Start != ""
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
	history := filepath.Join(o.Dir, "history")
	if old, _ := filepath.Glob(filepath.Join(history, "w*.jsonl")); len(old) > 0 {
		return nil, fmt.Errorf("there is a history in %s already; take another folder", history)
	}
	if err := os.MkdirAll(history, 0o755); err != nil {
		return nil, err
	}
	if err := drive(ctx, o, s, service, history); err != nil {
		return nil, err
	}
	lines, err := traffic.ReadAll(history)
	if err != nil {
		return nil, err
	}
	verdict, err := check.Judge(lines, check.Options{Traits: service.Traits, TTL: o.TTL})
	if err != nil {
		return nil, fmt.Errorf("the history in %s makes no sense: %w", history, err)
	}
	r := &Result{Verdict: verdict, Dir: o.Dir, Name: service.Name, Seed: o.Seed, For: o.For, TTL: o.TTL}
	if o.Start != "" && o.Service == "" {
		r.Name = o.Start
	}
	r.Report, err = report.Write(o.Dir, report.Run{
		Name: service.Name, Seed: o.Seed, TTL: o.TTL, Faults: o.Faults, Again: o.Again, Told: service.Told,
	}, lines, verdict)
	return r, err
}

// drive runs the traffic and the faults, and looks at the store in the end.
func drive(ctx context.Context, o Options, s *store, service traffic.Service, history string) (err error) {
	rec, err := traffic.NewRecorder(filepath.Join(history, "nemesis.jsonl"), "")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rec.Close()) }()
	guarded, err := traffic.NewRecorder(filepath.Join(history, "resource.jsonl"), "")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, guarded.Close()) }()
	resource, err := traffic.NewResource(guarded)
	if err != nil {
		return err
	}
	defer resource.Close()

	world := &fault.World{
		Servers: s.servers, Redis: s.redis, Volatile: s.volatile, Shared: s.shared, TTL: o.TTL, Rec: rec,
		Failover: s.failover, Lossy: s.lossy, Usurped: s.usurped,
	}
	if s.ours {
		u, err := traffic.ParseURL(s.url)
		if err != nil {
			return err
		}
		world.Clock = stepClock(u)
		world.EndStatements = statementEnder(u)
	}
	var workers []*worker
	defer func() {
		for _, w := range workers {
			if w.now != nil {
				w.now.mu.Lock()
				w.now.expected = true
				w.now.mu.Unlock()
				_ = w.now.cmd.Process.Kill()
				<-w.now.done
			}
			for _, p := range w.proxies {
				p.Close()
			}
		}
	}()
	begun := traffic.Now()
	if s.slot != nil {
		world.Slot = func(rng *rand.Rand) (func() error, error) {
			// A key of the present epoch, see traffic.
			key := fmt.Sprintf("%s/%d/%d", traffic.Ways()[rng.IntN(len(traffic.Ways()))], (traffic.Now()-begun)/int64(o.Epoch), rng.IntN(o.Keys))
			return s.slot(rng, "fencelock:{"+key+"}")
		}
	}
	for slot := range o.Workers {
		w := &worker{slot: slot + 1, command: o.Command, rec: rec, order: traffic.Order{
			Service: s.service, URL: s.url, TTL: o.TTL, Seed: o.Seed, Begun: begun, Dir: history,
			Resource: resource.Addr(), Clients: o.Clients, Users: o.Users, Keys: o.Keys, Epoch: o.Epoch, Ways: o.Ways,
		}}
		if s.proxies {
			if w.order.URL, w.order.Via, w.proxies, err = through(s.url); err != nil {
				return err
			}
		}
		workers = append(workers, w)
		world.Workers = append(world.Workers, w)
	}
	faults, refused, err := fault.Find(o.Faults, world)
	if err != nil {
		return err
	}
	if len(refused) > 0 && (o.URL != "" || len(faults) == 0) {
		return fmt.Errorf("not here: %s", strings.Join(refused, "; "))
	}
	for _, r := range refused {
		fmt.Fprintf(o.Out, "%s: not here: %s\n", service.Name, r)
	}
	// What is made with the first use, such as tables, is made before the traffic.
	first, err := service.Open(ctx, s.url, o.TTL)
	if err != nil {
		return err
	}
	if looker, ok := first.(traffic.Looker); ok && !s.ours && !s.alone {
		left, err := looker.Lines(ctx)
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("it is in use: %d locks are held or waited for there; torture a store that nobody else uses", len(left))
		}
		if err != nil {
			return errors.Join(err, first.Close())
		}
	}
	if !s.alone {
		soon, cancel := context.WithTimeout(ctx, 20*time.Second)
		l, _, err := first.Take(soon, traffic.Want{Key: "first", Kind: traffic.Exclusive})
		cancel()
		if err != nil {
			return errors.Join(fmt.Errorf("%s cannot be used: %w", service.Name, err), first.Close())
		}
		if _, err := l.Release(ctx); err != nil {
			return errors.Join(err, first.Close())
		}
	}
	if err := first.Close(); err != nil {
		return err
	}
	for _, w := range workers {
		if err := w.start(); err != nil {
			return err
		}
	}

	going, end := context.WithTimeout(ctx, o.For)
	var side sync.WaitGroup
	side.Go(func() { progress(going, o, service.Name, history) })
	err = fault.Nemesis(going, world, faults, o.Seed)
	end()
	side.Wait()
	if err != nil {
		return err
	}
	// All is healed. Who waits behind somebody that is gone gets the lock now.
	rec.Write(traffic.Line{Op: traffic.Note, Text: "healed"})
	rest := time.NewTimer(o.TTL + service.Lag + time.Second)
	select {
	case <-rest.C:
	case <-ctx.Done():
		rest.Stop()
	}
	for _, w := range workers {
		w.tell()
	}
	for _, w := range workers {
		if err := w.finish(30 * time.Second); err != nil {
			return err
		}
	}
	for key, members := range resource.Sets() {
		guarded.Write(traffic.Line{Op: traffic.Final, Key: key, Members: members})
	}
	if s.alone || ctx.Err() != nil {
		return ctx.Err()
	}
	return inspect(ctx, o, s, service, history, rec)
}

// inspect looks for what is left, and takes every key once.
func inspect(ctx context.Context, o Options, s *store, service traffic.Service, history string, rec *traffic.Recorder) (err error) {
	ended := time.Now()
	locks, err := service.Open(ctx, s.url, o.TTL)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, locks.Close()) }()
	lines, err := traffic.ReadAll(history)
	if err != nil {
		return err
	}
	wants := map[string]traffic.Want{}
	for _, l := range lines {
		if l.Op != traffic.Call {
			continue
		}
		w := traffic.Want{Key: l.Key, Kind: traffic.Exclusive}
		if l.Kind == traffic.Permit {
			w.Kind, w.Weight, w.Size = l.Kind, l.Size, l.Size
		}
		wants[l.Key] = w
	}
	// The last worker may have been killed shortly before its end: its leases run out.
	limit := o.TTL + o.TTL/100 + service.Lag + 2*time.Second
	empty := func(within time.Duration) error {
		begun := time.Now()
		looker, ok := locks.(traffic.Looker)
		for ok {
			left, err := looker.Lines(ctx)
			if err != nil {
				return fmt.Errorf("looking for what is left: %w", err)
			}
			if len(left) == 0 {
				rec.Write(traffic.Line{Op: traffic.Emptied, Ns: int64(time.Since(ended))})
				return nil
			}
			if time.Since(begun) > within {
				rec.Write(traffic.Line{Op: traffic.Odd, Key: left[0], Text: fmt.Sprintf("I8: after %v the store still holds %d claims, as of %s", within, len(left), left[0])})
				return nil
			}
			time.Sleep(50 * time.Millisecond)
		}
		return nil
	}
	if err := empty(limit); err != nil {
		return err
	}
	var mu sync.Mutex
	var all sync.WaitGroup
	slots := make(chan bool, 8)
	for _, w := range wants {
		slots <- true
		all.Go(func() {
			defer func() { <-slots }()
			soon, cancel := context.WithTimeout(ctx, limit+5*time.Second)
			defer cancel()
			l, _, err := locks.Take(soon, w)
			if err == nil {
				_, err = l.Release(ctx)
			}
			if err != nil {
				mu.Lock()
				defer mu.Unlock()
				rec.Write(traffic.Line{Op: traffic.Odd, Key: w.Key, Text: "I5: when all is healed the key cannot be had: " + err.Error()})
			}
		})
	}
	all.Wait()
	return empty(limit)
}

// progress says every few seconds how far it is.
func progress(ctx context.Context, o Options, name, history string) {
	const every = 5 * time.Second
	begun := time.Now()
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		files, _ := filepath.Glob(filepath.Join(history, "*.jsonl"))
		size := int64(0)
		for _, f := range files {
			if info, err := os.Stat(f); err == nil {
				size += info.Size()
			}
		}
		fmt.Fprintf(o.Out, "%s: %v of %v, %.1f MB of history\n", name, time.Since(begun).Round(time.Second), o.For, float64(size)/1e6)
	}
}

// Summary is what to print: the numbers, and each breach.
func (r *Result) Summary(w io.Writer) {
	n := r.Numbers
	fmt.Fprintf(w, "%s: %.0f s, TTL %v, %d keys, %d calls: %d held (%.0f/s), %d refused, %d given up; %d lost, %d taken again, %d broken\n",
		r.Name, n.Seconds, r.TTL, n.Keys, n.Calls, n.Held, float64(n.Held)/max(n.Seconds, 1), n.Refused, n.GaveUp, n.Lost, n.Again, n.Breaks)
	var faults []string
	for f, times := range n.Faults {
		faults = append(faults, fmt.Sprintf("%s %d", f, times))
	}
	slices.Sort(faults)
	fmt.Fprintf(w, "  faults: %s; ε %v; longest gap behind a vanished holder %v, after an outage %v; told late by %v at most\n",
		strings.Join(faults, ", "), n.Epsilon.Round(time.Millisecond), n.LongestGap.Round(time.Millisecond), n.AfterFault.Round(time.Millisecond), n.ToldLate.Round(time.Millisecond))
	fmt.Fprintf(w, "  %d operations, of %d of which nobody knows what came; %d breaches, %d locks stuck\n", n.Asked, n.Ambiguous, len(r.Violations), n.Stuck)
	fmt.Fprintf(w, "  sets: %d updates lost without the guard, %d late ones refused by it; %d operations put in order by the model\n", n.LostUpdates, n.Denied, n.Operations)
	for i, v := range r.Violations {
		if i == 10 {
			fmt.Fprintf(w, "  and %d more\n", len(r.Violations)-i)
			break
		}
		fmt.Fprintf(w, "  VIOLATION %v\n", v)
	}
	fmt.Fprintf(w, "  history and report: %s\n", r.Dir)
}
