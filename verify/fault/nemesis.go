package fault

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/fencelock/fencelock/internal/faultproxy"
	"github.com/fencelock/fencelock/verify/traffic"
)

// Worker is a process that uses locks. Its methods are called by one goroutine.
type Worker interface {
	// Kill ends it as kill -9 does, and starts another in its place.
	Kill() error
	// Stop and Resume send SIGSTOP and SIGCONT.
	Stop() error
	Resume() error
	// Proxies are those between it and the servers; none if there are none.
	Proxies() []*faultproxy.Proxy
}

// Server is a server of the store.
type Server interface {
	Pause() error
	Continue() error
	Kill() error
	Restart() error
	// Ask sends a command; for Redis only.
	Ask(args ...string) (string, error)
}

// World is what can be broken.
type World struct {
	Workers []Worker
	Servers []Server // nil where the store is a file, or memory
	// Redis says that the servers understand its commands.
	Redis bool
	// Failover makes another server of a group the one that grants; nil where there is no
	// such thing. Lossy says that what was acknowledged may be forgotten then.
	Failover func(*rand.Rand) error
	Lossy    bool
	// Usurped says that a server which was stopped and goes on may end leases that are alive.
	Usurped bool
	// Clock makes the store's clock step forward, as all claims see it; nil where nobody can.
	Clock func(context.Context, time.Duration) error
	// EndStatements has the server end the statements of all clients for a while, one after
	// another with a gap; nil where there are none.
	EndStatements func(ctx context.Context, d, gap time.Duration) error
	// HashSlot begins to move the hash slot of a key that is in use to another server, and
	// returns what finishes that; nil where there are none.
	HashSlot func(*rand.Rand) (finish func() error, err error)
	// Shared says that a worker which is stopped may stop all others, as with a file
	// that it has locked.
	Shared bool
	TTL    time.Duration
	Rec    *traffic.Recorder
}

// Fault is one way to break something.
type Fault struct {
	Name string
	What string // for people
	need need
	// outage says that nobody need make progress while it lasts.
	outage func(*World) bool
	// do breaks it, waits, and heals it. It returns early when ctx ends, healed all the
	// same.
	do func(ctx context.Context, w *World, rng *rand.Rand) error
}

// Find returns the faults of a list of names by commas: those that this world has
// something for, and what the others would need; or an error if a name is unknown. "all"
// stands for all but flushall.
func Find(names string, w *World) (found []Fault, refused []string, err error) {
	if names == "" || names == "none" {
		return nil, nil, nil
	}
	for n := range strings.SplitSeq(names, ",") {
		if n == "all" {
			found = append(found, slices.DeleteFunc(All(), func(f Fault) bool {
				return f.Name == "flushall" || !f.need.met(w)
			})...)
			continue
		}
		i := slices.IndexFunc(All(), func(f Fault) bool { return f.Name == n })
		switch {
		case i < 0:
			return nil, nil, fmt.Errorf("no fault is called %q; there are %s, and all", n, strings.Join(Names(), ", "))
		case !All()[i].need.met(w):
			refused = append(refused, n+" needs "+All()[i].need.text)
		default:
			found = append(found, All()[i])
		}
	}
	return found, refused, nil
}

// Names are the names of all faults.
func Names() []string {
	var names []string
	for _, f := range All() {
		names = append(names, f.Name)
	}
	return names
}

// Nemesis brings one fault after another until ctx ends; all are healed then. The seed
// says which, when, against whom and for how long.
func Nemesis(ctx context.Context, w *World, faults []Fault, seed uint64) error {
	if len(faults) == 0 {
		<-ctx.Done()
		return nil
	}
	rng := rand.New(rand.NewPCG(seed, 0xfa017))
	// Each fault comes once before any comes twice.
	var order []Fault
	for n := 0; ; n++ {
		if len(order) == 0 {
			order = slices.Clone(faults)
			rng.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		}
		f := order[0]
		order = order[1:]
		own := rand.New(rand.NewPCG(rng.Uint64(), 0))
		// Now and then it is quiet for long enough that a stuck lock would be seen.
		quiet := between(own, w.TTL/5, w.TTL)
		if n%4 == 3 {
			quiet = 4 * w.TTL
		}
		if !pause(ctx, quiet) {
			return nil
		}
		w.Rec.Write(traffic.Line{Op: traffic.Begin, Text: f.Name, Outage: f.outage(w)})
		err := f.do(ctx, w, own)
		w.Rec.Write(traffic.Line{Op: traffic.End, Text: f.Name, Outage: f.outage(w)})
		if err != nil {
			return fmt.Errorf("the fault %s: %w", f.Name, err)
		}
	}
}

// pause waits. It returns false when ctx has ended.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// between is a duration from low to high.
func between(rng *rand.Rand, low, high time.Duration) time.Duration {
	return low + time.Duration(rng.Int64N(int64(high-low)+1))
}
