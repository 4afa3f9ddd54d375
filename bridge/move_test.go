package bridge_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/bridge"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest"
	"github.com/fencelock/fencelock/drivertest/faulty"
	"github.com/fencelock/fencelock/memlock"
)

const (
	programs = 4
	workers  = 2                // of each program
	stage    = 20 * time.Second // in which the programs are restarted, one by one, in their next phase
	lease    = 2 * time.Second
	patience = 90 * time.Second // no worker waits longer in a fleet that makes progress
)

// grant is one lease: when its worker began to believe in it, and when that ended.
type grant struct {
	key, who   string
	phase      bridge.Phase
	shared     bool
	token      int64
	begin, end time.Duration
}

func (g grant) String() string {
	return fmt.Sprintf("%s on %q in phase %d (shared %v) from %v to %v with token %d",
		g.who, g.key, g.phase, g.shared, g.begin, g.end, g.token)
}

// fleet is the programs that move from old to new and back.
type fleet struct {
	rng      *rand.Rand
	old, new *memlock.Store
	foreign  *foreignStore // in place of old
	way      []bridge.Phase
	faults   bool
	start    time.Time

	mu     sync.Mutex
	grants []*grant
	wrong  []string
}

func (f *fleet) fail(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.wrong = append(f.wrong, fmt.Sprintf("%v: ", time.Since(f.start))+fmt.Sprintf(format, args...))
}

// random draws a time below d.
func (f *fleet) random(d time.Duration) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Duration(f.rng.Int64N(int64(d)))
}

func (f *fleet) n(n int) int { return int(f.random(time.Duration(n))) }

// move takes the fleet along its way, and returns what was wrong.
func (f *fleet) move(t *testing.T) []string {
	synctest.Test(t, func(*testing.T) {
		f.old, f.new, f.start = memlock.New(), memlock.New(), time.Now()
		var slots sync.WaitGroup
		for i := range programs {
			slots.Go(func() { f.slot(i) })
		}
		slots.Wait()
		time.Sleep(time.Minute)
		for i, s := range []*memlock.Store{f.old, f.new} {
			for l := range s.Lines(context.Background(), "") {
				f.fail("store %d has a claim left: %+v", i, l)
			}
		}
	})
	f.judge()
	return f.wrong
}

// slot is one program, which is restarted in each phase.
func (f *fleet) slot(i int) {
	for n, phase := range f.way {
		ends := time.Duration(n)*stage + f.random(stage)
		if n == len(f.way)-1 {
			ends = time.Duration(n+1) * stage
		}
		f.program(fmt.Sprintf("p%d.%d", i, n), phase, f.start.Add(ends))
	}
}

// program runs until ends, and then closes or crashes.
func (f *fleet) program(name string, p bridge.Phase, ends time.Time) {
	old, new := f.wire(f.old), f.wire(f.new)
	var b driver.Backend
	if f.foreign != nil {
		b = bridge.New(bridge.Foreign(&foreignClient{foreignStore: f.foreign, wire: old}), new)
	}
	switch {
	case p == bridge.NewOnly:
		b = new
	case b != nil:
	case p == bridge.OldOnly:
		b = old
	case p == bridge.Both:
		b = bridge.New(old, new)
	}
	client, err := fencelock.New(b, &fencelock.Options{TTL: lease, HandOff: 4, Owner: name})
	if err != nil {
		f.fail("%v", err)
		return
	}
	ctx, kill := context.WithCancel(context.Background())
	var work sync.WaitGroup
	for i := range workers {
		work.Go(func() {
			for n := 0; time.Now().Before(ends) && ctx.Err() == nil; n++ {
				if who := fmt.Sprintf("%s.%d.%d", name, i, n); f.foreign != nil && p == bridge.OldOnly {
					f.workForeign(ctx, who, ends)
				} else {
					f.work(ctx, client, p, who)
				}
			}
		})
	}
	if f.n(2) == 0 { // kill -9: nothing that it sends from now on arrives
		time.Sleep(time.Until(ends))
		old.Pause()
		new.Pause()
		kill()
	}
	work.Wait()
	kill()
	client.Close()
}

// wire is the way of one program to a store.
func (f *fleet) wire(s *memlock.Store) *faulty.Backend {
	o := faulty.Options{Delay: 20 * time.Millisecond}
	if f.faults {
		o.Fail, o.Lose, o.Late, o.DropPushes = 0.02, 0.03, 0.03, f.n(4) == 0
	}
	return faulty.New(s, uint64(f.n(1<<30)), o)
}

// work takes one lock, holds it for a while and releases it.
func (f *fleet) work(ctx context.Context, c *fencelock.Client, p bridge.Phase, who string) {
	select {
	case <-time.After(f.random(time.Second)):
	case <-ctx.Done():
		return
	}
	g := &grant{key: []string{"a", "b"}[f.n(2)], who: who, phase: p, shared: f.n(4) == 0 && f.foreign == nil}
	begun, take, opts := time.Now(), c.Lock, []fencelock.Option{}
	if g.shared {
		take = c.RLock
	}
	if f.n(4) == 0 {
		opts = append(opts, fencelock.Wait(0))
	}
	asking, stop := context.WithTimeout(ctx, patience)
	defer stop()
	l, err := take(asking, g.key, opts...)
	if waited := time.Since(begun); waited >= patience {
		f.fail("%s waited %v: %v", who, waited, err)
	}
	if err != nil || l.Err() != nil {
		return
	}
	g.token, g.begin = int64(l.Token()), time.Since(f.start)
	f.mu.Lock()
	f.grants = append(f.grants, g)
	f.mu.Unlock()
	select {
	case <-time.After(f.random(3 * time.Second)):
	case <-l.Context().Done():
	case <-ctx.Done():
	}
	g.end = time.Since(f.start)
	if ctx.Err() == nil {
		l.Release(context.Background())
	}
}

// judge looks for two that were inside at once and for tokens that do not rise.
func (f *fleet) judge() {
	slices.SortFunc(f.grants, func(g, h *grant) int { return int(g.begin - h.begin) })
	for i, h := range f.grants {
		for _, g := range f.grants[:i] {
			switch {
			case g.key != h.key || g.shared && h.shared:
			case g.end > h.begin:
				f.wrong = append(f.wrong, fmt.Sprintf("inside at once: %v, and %v", g, h))
			case h.token == 0: // of a foreign lock
			case g.token >= h.token:
				f.wrong = append(f.wrong, fmt.Sprintf("the token does not rise: %v, then %v", g, h))
			}
		}
	}
	if len(f.grants) < 10*len(f.way) {
		f.wrong = append(f.wrong, fmt.Sprintf("only %d grants", len(f.grants)))
	}
}

// there and back: in the first and last stage of a move programs of two phases run.
var thereAndBack = []bridge.Phase{bridge.OldOnly, bridge.Both, bridge.Both, bridge.NewOnly, bridge.Both, bridge.Both, bridge.OldOnly}

// seeds is how many fleets move. With -tags verify it is 300.
var seeds = 10

func TestFleetMovesThereAndBack(t *testing.T) { moveFleets(t, seeds, func(*fleet) {}) }

// moveFleets moves n fleets there and back, with and without faults. with is called for each.
func moveFleets(t *testing.T, n int, with func(*fleet)) {
	for _, faults := range []bool{false, true} {
		for _, seed := range drivertest.Seeds(t, n) {
			t.Run(fmt.Sprintf("faults=%v/seed=%d", faults, seed), func(t *testing.T) {
				f := &fleet{rng: rand.New(rand.NewPCG(seed, seed)), way: thereAndBack, faults: faults}
				with(f)
				for _, wrong := range f.move(t) {
					t.Error(wrong)
				}
			})
		}
	}
}
