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
	Peers  []string  // names, or beginnings of names with a star behind; all if empty
	Out    io.Writer // tables, one case after the other; nil for none
	Lines  io.Writer // a line of JSON for each library, round and case; nil for none
	Log    io.Writer // what is going on
	// Command starts this program again as a child, which calls Child.
	Command []string
}

// Case is one question.
type Case struct {
	Name  string
	What  string // for people
	Store string // where the libraries keep their locks
	run   func(*Bench, context.Context) error
}

// Cases returns all cases in the order in which they run.
func Cases() []Case {
	return []Case{
		{"free", "one goroutine, one key that nobody else wants", onRedis, (*Bench).free},
		{"keys", "many goroutines, a key for each", onRedis, (*Bench).keys},
		{"hot", "many goroutines of one process on one key", onRedis, (*Bench).hot},
		{"stranger", "another process beside 64 goroutines on one key", onRedis, (*Bench).stranger},
		{"processes", "four processes with eight goroutines each on one key", onRedis, (*Bench).processes},
		{"line", "a long line of waiters, each a process of its own to the server", onRedis, (*Bench).line},
		{"held", "many leases that are held and renewed", onRedis, (*Bench).held},
		{"redlock", "a majority of independent Redis servers", nowhere, (*Bench).redlock},
		{"etcd", "etcd: a free lock, many keys, one key", onEtcd, storeCases(onEtcd)},
		{"zookeeper", "ZooKeeper: the same", onZooKeeper, storeCases(onZooKeeper)},
		{"postgres", "PostgreSQL: the same", onPostgres, storeCases(onPostgres)},
		{"mariadb", "MariaDB: the same", onMariaDB, storeCases(onMariaDB)},
	}
}

// Bench is one run.
type Bench struct {
	Options
	place *place // where the case that runs keeps its locks
	dir   string
	all   Measured
	warm  bool // each library has one turn more, before all, that does not count
	used  int  // keys so far
	wrong int  // violations by fencelock so far
	pace  pace
}

// Measured is what a run has found.
type Measured struct {
	About   map[string]string
	Results []Result
}

// lease is the TTL of all leases but those of the case held.
const lease = 30 * time.Second

// Run measures what o asks for. It starts the servers for that, and ends them.
func Run(ctx context.Context, o Options) (_ *Measured, err error) {
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
	if err := os.Chmod(dir, 0o755); err != nil { // servers that run as another user pass through
		return nil, err
	}
	b := &Bench{Options: o, dir: dir}
	b.all.About = about()
	defer func() {
		if b.place != nil {
			err = errors.Join(err, b.place.stop())
		}
	}()
	for _, c := range Cases() {
		if len(o.Cases) > 0 && !slices.Contains(o.Cases, c.Name) {
			continue
		}
		if err := b.move(ctx, c.Store); err != nil {
			return nil, fmt.Errorf("case %s: %w", c.Name, err)
		}
		before := len(b.all.Results)
		begun := time.Now()
		if err := c.run(b, ctx); err != nil {
			return nil, fmt.Errorf("case %s: %w", c.Name, err)
		}
		fmt.Fprintf(b.Log, "case %s took %.1f s\n", c.Name, time.Since(begun).Seconds())
		if b.Out != nil {
			printTables(b.Out, b.all.Results[before:])
		}
	}
	b.all.About["load average at the end"] = load()
	b.pace.tell(b.all.About)
	b.encode(b.all.About)
	if b.wrong > 0 {
		return nil, fmt.Errorf("fencelock: %d grants broke mutual exclusion or the order of tokens", b.wrong)
	}
	return &b.all, nil
}

// move has the next case keep its locks in store, on a server of its own.
func (b *Bench) move(ctx context.Context, store string) error {
	if b.place != nil && b.place.store == store {
		return nil
	}
	if b.place != nil {
		err := b.place.stop()
		b.place = nil
		if err != nil {
			return err
		}
	}
	own, err := os.MkdirTemp(b.dir, store+"-")
	if err != nil {
		return err
	}
	if err := os.Chmod(own, 0o755); err != nil {
		return err
	}
	p, err := startPlace(ctx, store, own)
	if err != nil {
		return err
	}
	b.place = p
	if p.version != "" {
		b.all.About[store] = p.version
	}
	return nil
}

func (b *Bench) env() Env {
	return Env{Store: b.place.addr, Nodes: b.place.nodes, Dir: b.dir, TTL: lease}
}

// key returns a key that was not used before.
func (b *Bench) key() string {
	b.used++
	return fmt.Sprintf("k%06d", b.used)
}

// turn lasts d, or a part of it in a short run.
func (b *Bench) turn(d time.Duration) time.Duration {
	if b.Short {
		return d / 3
	}
	return d
}

// Values is what one library did in one round of one case, by the names that its
// columns have.
type Values map[string]float64

// Result is what one library did in one round.
type Result struct {
	Case   string `json:"case"`
	Size   int    `json:"size"`
	Peer   string `json:"peer"`
	Round  int    `json:"round"`
	Values Values `json:"values"`
}

// rounds opens the libraries that take part and gives each of them one turn a round.
func (b *Bench) rounds(ctx context.Context, part string, size, rounds int,
	turn func(context.Context, Peer, Locker) (Values, error)) (err error) {
	peers := taking(part, size, b.Peers)
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
	}
	for i, p := range peers {
		if !b.warm {
			break
		}
		if _, err := turn(ctx, p, lockers[i]); err != nil {
			return fmt.Errorf("%s: %w", p.Name, err)
		}
	}
	return b.each(ctx, part, size, rounds, peers, func(ctx context.Context, i int) (Values, error) {
		return turn(ctx, peers[i], lockers[i])
	})
}

// each gives each of peers one turn a round, in an order of its own: in one that only rotates
// each has the same one before it in every round, and what that leaves behind in the caches,
// on the disk or of the processor's clock makes up to a tenth.
func (b *Bench) each(ctx context.Context, part string, size, rounds int, peers []Peer,
	turn func(ctx context.Context, i int) (Values, error)) error {
	fmt.Fprintf(b.Log, "%s %d: %d rounds of %d\n", part, size, rounds, len(peers))
	order := rand.New(rand.NewPCG(uint64(size), uint64(rounds)))
	for round := range rounds {
		for _, i := range order.Perm(len(peers)) {
			if err := ctx.Err(); err != nil {
				return err
			}
			// Nobody pays for the garbage of the one before.
			runtime.GC()
			b.pace.take()
			var v Values
			var err error
			pprof.Do(ctx, pprof.Labels("peer", peers[i].Name, "case", part), func(ctx context.Context) {
				v, err = turn(ctx, i)
			})
			if err != nil {
				return fmt.Errorf("%s: %w", peers[i].Name, err)
			}
			if strings.HasPrefix(peers[i].Name, ours) {
				b.wrong += int(v["violations"])
			}
			b.record(Result{part, size, peers[i].Name, round, v})
		}
	}
	return nil
}

// record keeps a result, and writes it as a line of JSON.
func (b *Bench) record(r Result) {
	for name, x := range r.Values {
		if x != x || x > 1e300 || x < -1e300 {
			delete(r.Values, name) // JSON has no such numbers
		}
	}
	b.all.Results = append(b.all.Results, r)
	b.encode(r)
}

func (b *Bench) encode(v any) {
	if b.Lines != nil {
		// What cannot be written has nobody who reads it.
		_ = json.NewEncoder(b.Lines).Encode(v)
	}
}

// Read returns what a run has written as lines of JSON.
func Read(r io.Reader) (*Measured, error) {
	m := &Measured{}
	for d := json.NewDecoder(r); ; {
		var raw json.RawMessage
		if err := d.Decode(&raw); err == io.EOF {
			break
		} else if err != nil {
			return nil, err
		}
		var one Result
		if err := json.Unmarshal(raw, &one); err != nil {
			return nil, err
		}
		if one.Case != "" {
			m.Results = append(m.Results, one)
			continue
		}
		if err := json.Unmarshal(raw, &m.About); err != nil {
			return nil, err
		}
	}
	if m.About == nil {
		return nil, errors.New("these lines are not from a run that has ended")
	}
	return m, nil
}

// bill is what a turn has cost.
type bill struct {
	asked
	client float64 // seconds of processor time of this process
}

// price does a turn and says what it cost.
func (b *Bench) price(p Peer, turn func() error) (bill, error) {
	before, err := b.place.read()
	if err != nil {
		return bill{}, err
	}
	cpu := cpuTime()
	if err := turn(); err != nil {
		return bill{}, err
	}
	cost := bill{client: (cpuTime() - cpu).Seconds()}
	after, err := b.place.read()
	cost.asked = after.since(before, p.Direct)
	return cost, err
}

// per adds to v what each of n things has cost.
func (c bill) per(n float64, p Peer, v Values) {
	v["client_us"] = 1e6 * c.client / n
	if p.Local {
		return
	}
	if c.counted {
		v["requests"] = c.requests / n
	}
	if c.cpu > 0 {
		v["server_us"] = 1e6 * c.cpu / n
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
