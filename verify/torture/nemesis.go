package torture

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/fencelock/fencelock/internal/faultproxy"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/verify/traffic"
)

// victim is a process that uses locks. Its methods are called by one goroutine.
type victim interface {
	// kill ends it as kill -9 does, and starts another in its place.
	kill() error
	// stop and resume send SIGSTOP and SIGCONT.
	stop() error
	resume() error
	// between are the proxies between it and the servers; none if there are none.
	between() []*faultproxy.Proxy
}

// world is what can be broken. A function is nil where the store has no such fault.
type world struct {
	victims []victim
	servers []*testserver.Server // nil where the store is a file, or memory
	disks   []disk
	redis   bool // the servers understand its commands
	lossy   bool // a failover may forget what was acknowledged
	usurped bool // a server that was stopped and resumes may end live leases
	shared  bool // a stopped worker may stop all others, as with a locked file
	halts   bool // a server whose disk was full does nothing more until it starts again
	ttl     time.Duration
	rec     *traffic.Recorder

	// failover makes another server of a group the one that grants.
	failover func(*rand.Rand) error
	// clock makes the store's clock step forward, as all claims see it.
	clock func(context.Context, time.Duration) error
	// endStatements ends the statements of all clients for a while, with a gap between two.
	endStatements func(ctx context.Context, d, gap time.Duration) error
	// hashSlot begins to move the hash slot of a key in use to another server.
	hashSlot func(*rand.Rand) (finish func() error, err error)
	// elected waits for servers that take longer than a few leases to agree on a leader.
	elected func(context.Context) error
}

// disk is one that a store has to itself.
type disk struct {
	dir    string
	server *testserver.Server // nil if workers write to it themselves
}

// fault is one way to break something.
type fault struct {
	name string
	what string // for people
	need need
	// outage says that nobody need make progress while it lasts; forgets, that the store may
	// lose claims from its beginning on.
	outage, forgets func(*world) bool
	// do breaks it, waits, and heals it. It returns early when ctx ends, healed all the
	// same.
	do func(ctx context.Context, w *world, rng *rand.Rand) error
}

// Faults lists all faults for people, a line each.
func Faults() string {
	var b strings.Builder
	for _, f := range faults {
		fmt.Fprintf(&b, "  %-15s %s\n", f.name, f.what)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// find returns the faults of a list of names by commas: those that this world has
// something for, and what the others would need; or an error if a name is unknown. "all"
// stands for all but flushall.
func (w *world) find(names string) (found []fault, refused []string, err error) {
	if names == "" || names == "none" {
		return nil, nil, nil
	}
	for n := range strings.SplitSeq(names, ",") {
		known := n == "all"
		for _, f := range faults {
			met := f.need.met(w)
			switch {
			case n == f.name && !met:
				refused = append(refused, n+" needs "+f.need.text)
			case n == f.name, n == "all" && met && f.name != "flushall":
				found = append(found, f)
			}
			known = known || n == f.name
		}
		if !known {
			return nil, nil, fmt.Errorf("no fault is called %q; there are all, and\n%s", n, Faults())
		}
	}
	return found, refused, nil
}

// nemesis brings one fault after another until ctx ends; all are healed then. The seed
// says which, when, against whom and for how long.
func (w *world) nemesis(ctx context.Context, faults []fault, seed uint64) error {
	if len(faults) == 0 {
		<-ctx.Done()
		return nil
	}
	rng := rand.New(rand.NewPCG(seed, 0xfa017))
	// Each fault comes once before any comes twice.
	var order []fault
	for n := 0; ; n++ {
		if len(order) == 0 {
			order = slices.Clone(faults)
			rng.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		}
		f := order[0]
		order = order[1:]
		own := rand.New(rand.NewPCG(rng.Uint64(), 0))
		// Now and then it is quiet for long enough that a stuck lock would be seen.
		quiet := between(own, w.ttl/5, w.ttl)
		if n%4 == 3 {
			quiet = 4 * w.ttl
		}
		if !traffic.Sleep(ctx, quiet) {
			return nil
		}
		w.rec.Write(traffic.Line{Op: traffic.Begin, Text: f.name, Outage: f.outage(w)})
		if f.forgets(w) {
			w.rec.Write(traffic.Line{Op: traffic.Forgot})
		}
		err := f.do(ctx, w, own)
		if err == nil && f.outage(w) && w.elected != nil {
			err = w.elected(ctx)
		}
		w.rec.Write(traffic.Line{Op: traffic.End, Text: f.name, Outage: f.outage(w)})
		if err != nil {
			return fmt.Errorf("the fault %s: %w", f.name, err)
		}
	}
}

// between is a duration from low to high.
func between(rng *rand.Rand, low, high time.Duration) time.Duration {
	return low + time.Duration(rng.Int64N(int64(high-low)+1))
}
