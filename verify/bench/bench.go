// Package bench compares fencelock with other lock libraries and with the raw cost of
// each store, on one machine and in one run.
//
// # Fairness
//
// A round gives each library one short turn, in an order that the round draws anew. A
// value is the median over the rounds; a ratio is the median of the ratios within each
// round. Ratios are the numbers to trust.
//
// The libraries of a case share one server, started for it on the loopback device and as
// durable as it is by default. They use the same leases and their clients' default
// settings. A library whose own settings matter takes part with its default and with the
// best one we know.
//
// A guard is visited under every lock. It counts a second holder, or a token that does not
// rise; a run in which fencelock causes either fails.
//
// A floor is raw commands through the same client. It is no lock that one could use.
//
// # Adding a library
//
// Write a function that opens a Locker, and add a line to the list in peers.go. Cases are
// in cases.go, columns in tables.go, targets in targets.go.
package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"time"
)

// Options say what to measure.
type Options struct {
	Rounds int       // of each case; at least 1
	Short  bool      // turns of a third of their length
	Cases  []string  // names; all if empty
	Peers  []string  // names, or prefixes that end with a star; all if empty
	Log    io.Writer // progress
}

// Values is what one library did in one round, by the names of the columns.
type Values map[string]float64

// Result is what one library did in one round of one part of a case.
type Result struct {
	Part   string `json:"part"`
	Size   int    `json:"size"`
	Peer   string `json:"peer"`
	Round  int    `json:"round"`
	Values Values `json:"values"`
}

// Bench is one run.
type Bench struct {
	Options
	server     *server // of the case that runs
	dir        string
	serve      string // the command fencelock, of the case service
	report     Report
	keys       int // used so far
	violations int // by fencelock so far
}

// lease is the TTL of all leases but those of the case held.
const lease = 30 * time.Second

// Run measures what o asks for. It starts the servers for that, and stops them. Beside an
// error it returns what it has measured.
func Run(ctx context.Context, o Options) (*Report, error) {
	for _, name := range o.Cases {
		if !slices.ContainsFunc(Cases(), func(c Case) bool { return c.Name == name }) {
			return nil, fmt.Errorf("no case is called %q", name)
		}
	}
	dir, err := os.MkdirTemp("", "fencelock-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	b := &Bench{Options: o, dir: dir, report: Report{About: about()}}
	for _, c := range Cases() {
		if len(o.Cases) > 0 && !slices.Contains(o.Cases, c.Name) {
			continue
		}
		if err := b.runCase(ctx, c); err != nil {
			return &b.report, fmt.Errorf("case %s: %w", c.Name, err)
		}
	}
	b.report.About["load average at the end"] = load1()
	if b.violations > 0 {
		return &b.report, fmt.Errorf("fencelock: %d grants broke mutual exclusion or the order of tokens", b.violations)
	}
	return &b.report, nil
}

// runCase runs one case on a server of its own.
func (b *Bench) runCase(ctx context.Context, c Case) (err error) {
	if b.server, err = startServer(ctx, c, b.dir); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.server.stop()) }()
	if b.server.version != "" {
		b.report.About[c.Store] = b.server.version
	}
	if len(b.server.nodes) > 1 {
		if err := initialiseQuorum(ctx, b.env()); err != nil {
			return err
		}
	}
	if c.Name == "service" {
		if b.serve, err = buildServe(ctx, b.dir); err != nil {
			return err
		}
	}
	begun := time.Now()
	for _, p := range c.parts {
		if err := b.runPart(ctx, p); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	fmt.Fprintf(b.Log, "case %s took %.1f s\n", c.Name, time.Since(begun).Seconds())
	return nil
}

// runPart opens the libraries that take part, and gives each of them one turn a round.
// Every round draws its order anew: what a turn leaves behind in caches and on the disk
// changes the next one by up to a tenth.
func (b *Bench) runPart(ctx context.Context, p part) (err error) {
	peers := participants(p.name, p.size, b.Peers)
	lockers := make([][]Locker, len(peers))
	defer func() {
		for _, l := range slices.Concat(lockers...) {
			err = errors.Join(err, l.Close())
		}
	}()
	for i, peer := range peers {
		for range p.clients {
			l, err := peer.Open(b.env())
			if err != nil {
				return fmt.Errorf("opening %s: %w", peer.Name, err)
			}
			lockers[i] = append(lockers[i], l)
		}
		if p.warm {
			if _, err := p.turn(b, ctx, p, peer, lockers[i]); err != nil {
				return fmt.Errorf("%s: %w", peer.Name, err)
			}
		}
	}
	if p.awake {
		stop, err := keepAwake(ctx)
		if err != nil {
			return err
		}
		defer stop()
	}
	rounds := int(math.Ceil(p.rounds * float64(b.Rounds)))
	fmt.Fprintf(b.Log, "%s %d: %d rounds of %d\n", p.name, p.size, rounds, len(peers))
	order := rand.New(rand.NewPCG(uint64(p.size), uint64(rounds)))
	for round := range rounds {
		for _, i := range order.Perm(len(peers)) {
			if err := ctx.Err(); err != nil {
				return err
			}
			runtime.GC() // nobody pays for another's garbage
			v, err := p.turn(b, ctx, p, peers[i], lockers[i])
			if err != nil {
				return fmt.Errorf("%s: %w", peers[i].Name, err)
			}
			b.record(Result{p.name, p.size, peers[i].Name, round, v})
		}
	}
	return nil
}

// record keeps a result.
func (b *Bench) record(r Result) {
	if isOurs(r.Peer) {
		b.violations += int(r.Values["violations"])
	}
	maps.DeleteFunc(r.Values, func(_ string, x float64) bool {
		return math.IsNaN(x) || math.IsInf(x, 0) // JSON has no such numbers
	})
	b.report.Results = append(b.report.Results, r)
}

func (b *Bench) env() Env {
	sv := b.server
	return Env{URL: sv.all[0].URL(), Addr: sv.nodes[0], Nodes: sv.nodes, Dir: b.dir, Serve: b.serve, TTL: lease}
}

// key returns a key that was not used before.
func (b *Bench) key() string {
	b.keys++
	return fmt.Sprintf("k%06d", b.keys)
}

// length is how long a turn lasts.
func (b *Bench) length(p part) time.Duration {
	if b.Short {
		return p.length / 3
	}
	return p.length
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
