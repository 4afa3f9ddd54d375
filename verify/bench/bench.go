package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"time"
)

// Options say what to measure.
type Options struct {
	Rounds int       // of each case; at least 1
	Short  bool      // shorter turns and fewer sizes
	Cases  []string  // names; all if empty
	Peers  []string  // names, or prefixes that end with a star; all if empty
	Out    io.Writer // tables, one case after the other; nil for none
	Lines  io.Writer // a line of JSON for each library, round and case; nil for none
	Log    io.Writer // progress
	// Command starts this program again as a child, which calls Child.
	Command []string
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

// Report is what a run has measured.
type Report struct {
	About   map[string]string
	Results []Result
}

// Bench is one run.
type Bench struct {
	Options
	server     *server // of the case that runs
	dir        string
	report     Report
	warm       bool // each library has one turn more, before all others, that does not count
	keys       int  // used so far
	violations int  // by fencelock so far
}

// lease is the TTL of all leases but those of the case held.
const lease = 30 * time.Second

// Run measures what o asks for. It starts the servers for that, and stops them.
func Run(ctx context.Context, o Options) (_ *Report, err error) {
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
	if err := os.Chmod(dir, 0o755); err != nil { // some servers run as another user
		return nil, err
	}
	b := &Bench{Options: o, dir: dir}
	b.report.About = about()
	for _, c := range Cases() {
		if len(o.Cases) > 0 && !slices.Contains(o.Cases, c.Name) {
			continue
		}
		if err := b.runCase(ctx, c); err != nil {
			return nil, fmt.Errorf("case %s: %w", c.Name, err)
		}
	}
	b.report.About["load average at the end"] = load1()
	if err := b.encode(b.report.About); err != nil {
		return nil, err
	}
	if b.violations > 0 {
		return nil, fmt.Errorf("fencelock: %d grants broke mutual exclusion or the order of tokens", b.violations)
	}
	return &b.report, nil
}

// runCase runs one case on a server of its own.
func (b *Bench) runCase(ctx context.Context, c Case) (err error) {
	dir, err := os.MkdirTemp(b.dir, "server-")
	if err != nil {
		return err
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	if b.server, err = startServer(ctx, c.Store, c.servers, dir); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.server.stop()) }()
	if b.server.version != "" {
		b.report.About[c.Store] = b.server.version
	}
	before, begun := len(b.report.Results), time.Now()
	if err := c.run(b, ctx); err != nil {
		return err
	}
	fmt.Fprintf(b.Log, "case %s took %.1f s\n", c.Name, time.Since(begun).Seconds())
	if b.Out != nil {
		printTables(b.Out, b.report.Results[before:])
	}
	return nil
}

func (b *Bench) env() Env {
	return Env{Store: b.server.addr, Nodes: b.server.nodes, Dir: b.dir, TTL: lease}
}

// key returns a key that was not used before.
func (b *Bench) key() string {
	b.keys++
	return fmt.Sprintf("k%06d", b.keys)
}

// rounds opens the libraries that take part and gives each of them one turn a round.
func (b *Bench) rounds(ctx context.Context, part string, size, rounds int,
	turn func(context.Context, Peer, Locker) (Values, error)) (err error) {
	peers := participants(part, size, b.Peers)
	lockers := make([]Locker, len(peers))
	defer func() {
		for _, l := range lockers {
			if l != nil {
				err = errors.Join(err, l.Close())
			}
		}
	}()
	for i, p := range peers {
		if lockers[i], err = p.Open(b.env()); err != nil {
			return fmt.Errorf("opening %s: %w", p.Name, err)
		}
		if b.warm {
			if _, err := turn(ctx, p, lockers[i]); err != nil {
				return fmt.Errorf("%s: %w", p.Name, err)
			}
		}
	}
	return b.each(ctx, part, size, rounds, peers, func(ctx context.Context, i int) (Values, error) {
		return turn(ctx, peers[i], lockers[i])
	})
}

// each gives each of peers one turn a round. Every round draws its order anew: what a turn
// leaves behind in caches and on the disk changes the next one by up to a tenth.
func (b *Bench) each(ctx context.Context, part string, size, rounds int, peers []Peer,
	turn func(ctx context.Context, i int) (Values, error)) error {
	fmt.Fprintf(b.Log, "%s %d: %d rounds of %d\n", part, size, rounds, len(peers))
	order := rand.New(rand.NewPCG(uint64(size), uint64(rounds)))
	for round := range rounds {
		for _, i := range order.Perm(len(peers)) {
			if err := ctx.Err(); err != nil {
				return err
			}
			runtime.GC() // nobody pays for another's garbage
			var v Values
			var err error
			pprof.Do(ctx, pprof.Labels("peer", peers[i].Name, "part", part), func(ctx context.Context) {
				v, err = turn(ctx, i)
			})
			if err != nil {
				return fmt.Errorf("%s: %w", peers[i].Name, err)
			}
			if isOurs(peers[i].Name) {
				b.violations += int(v["violations"])
			}
			if err := b.record(Result{part, size, peers[i].Name, round, v}); err != nil {
				return err
			}
		}
	}
	return nil
}

// record keeps a result, and writes it as a line of JSON.
func (b *Bench) record(r Result) error {
	for name, x := range r.Values {
		if x != x || x > 1e300 || x < -1e300 {
			delete(r.Values, name) // JSON has no such numbers
		}
	}
	b.report.Results = append(b.report.Results, r)
	return b.encode(r)
}

func (b *Bench) encode(v any) error {
	if b.Lines == nil {
		return nil
	}
	return json.NewEncoder(b.Lines).Encode(v)
}

// Read returns the report of a run that was written as lines of JSON.
func Read(r io.Reader) (*Report, error) {
	var report Report
	for d := json.NewDecoder(r); ; {
		var line json.RawMessage
		if err := d.Decode(&line); err == io.EOF {
			break
		} else if err != nil {
			return nil, err
		}
		var one Result
		if json.Unmarshal(line, &one) == nil && one.Part != "" {
			report.Results = append(report.Results, one)
		} else if err := json.Unmarshal(line, &report.About); err != nil {
			return nil, err
		}
	}
	if report.About == nil {
		return nil, errors.New("the run of these lines has not ended")
	}
	return &report, nil
}

// cost is what a turn used.
type cost struct {
	requests, server float64 // of the server: requests, seconds of processor time
	client           float64 // seconds of processor time of this process
	mallocs, bytes   float64 // of this process
}

// measure runs turn and returns its cost.
func (b *Bench) measure(p Peer, turn func() error) (c cost, err error) {
	before, err := b.server.counters()
	if err != nil {
		return c, err
	}
	var start, end runtime.MemStats
	cpu := cpuTime()
	runtime.ReadMemStats(&start)
	if err := turn(); err != nil {
		return c, err
	}
	runtime.ReadMemStats(&end)
	c.client = (cpuTime() - cpu).Seconds()
	c.mallocs, c.bytes = float64(end.Mallocs-start.Mallocs), float64(end.TotalAlloc-start.TotalAlloc)
	after, err := b.server.counters()
	c.requests, c.server = after.requests(p.Direct)-before.requests(p.Direct), after.cpu-before.cpu
	return c, err
}

// per adds to v the cost of each of n operations.
func (c cost) per(n float64, p Peer, v Values) {
	v["client_us"] = 1e6 * c.client / n
	if !p.Local && c.server > 0 {
		v["requests"], v["server_us"] = c.requests/n, 1e6*c.server/n
	}
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

// isOurs reports whether the library is fencelock, on any store.
func isOurs(peer string) bool { return strings.HasPrefix(peer, ours) }
