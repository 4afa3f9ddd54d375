package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"time"

	"github.com/fencelock/fencelock/internal/testserver"
)

// Options say what to measure.
type Options struct {
	Rounds int      // of each case; at least 1
	Short  bool     // shorter turns and fewer sizes
	Cases  []string // names; all if empty
	Peers  []string // names, or beginnings of names with a star behind; all if empty
	JSON   bool     // a line for each library, round and case, instead of tables
	Out    io.Writer
	Log    io.Writer // what is going on
	// Command starts this program again as a child, which calls Child.
	Command []string
}

// Case is one question.
type Case struct {
	Name string
	What string // for people
	run  func(*Bench, context.Context) error
}

// Cases returns all cases in the order in which they run.
func Cases() []Case {
	return []Case{
		{"free", "one goroutine, one key that nobody else wants", (*Bench).free},
		{"keys", "many goroutines, a key for each", (*Bench).keys},
		{"hot", "many goroutines of one process on one key", (*Bench).hot},
		{"processes", "four processes with eight goroutines each on one key", (*Bench).processes},
		{"held", "many leases that are held and renewed", (*Bench).held},
	}
}

// Bench is one run.
type Bench struct {
	Options
	server *testserver.Server
	dir    string
	out    report
	used   int // keys so far
	wrong  int // violations by fencelock so far
}

// lease is the TTL of all leases but those of the case held.
const lease = 30 * time.Second

// Run measures what o asks for. It starts a redis-server for that, and ends it.
func Run(ctx context.Context, o Options) (err error) {
	for _, name := range o.Cases {
		if !slices.ContainsFunc(Cases(), func(c Case) bool { return c.Name == name }) {
			return fmt.Errorf("no case is called %q", name)
		}
	}
	dir, err := os.MkdirTemp("", "fencelock-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	server, err := testserver.StartRedis(ctx, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()

	b := &Bench{Options: o, server: server, dir: dir, out: report{o.Out, o.JSON}}
	b.out.head(version(server))
	for _, c := range Cases() {
		if len(o.Cases) > 0 && !slices.Contains(o.Cases, c.Name) {
			continue
		}
		if err := c.run(b, ctx); err != nil {
			return fmt.Errorf("case %s: %w", c.Name, err)
		}
	}
	b.out.foot()
	if b.wrong > 0 {
		return fmt.Errorf("fencelock: %d grants broke mutual exclusion or the order of tokens", b.wrong)
	}
	return nil
}

func (b *Bench) env() Env {
	return Env{Redis: b.server.Addr(), Dir: b.dir, TTL: lease}
}

// key returns a key that was not used before.
func (b *Bench) key() string {
	b.used++
	return fmt.Sprintf("k%06d", b.used)
}

// turn lasts d, or a part of it in a short run.
func (b *Bench) turn(d time.Duration) time.Duration {
	if b.Short {
		return d / 5
	}
	return d
}

// sizes are all of them, or in a short run the first.
func (b *Bench) sizes(all ...int) []int {
	if b.Short {
		return all[:1]
	}
	return all
}

// Values is what one library did in one round of one case, by the names that its
// columns have.
type Values map[string]float64

// rounds opens the libraries that take part and gives each of them one turn a
// round, in an order that is rotated.
func (b *Bench) rounds(ctx context.Context, part string, size, rounds int, base string,
	turn func(context.Context, Peer, Locker) (Values, error)) (_ results, err error) {
	peers := taking(part, b.Peers, base)
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
			return nil, fmt.Errorf("opening %s: %w", p.Name, err)
		}
	}
	return b.each(ctx, part, size, rounds, peers, func(ctx context.Context, i int) (Values, error) {
		return turn(ctx, peers[i], lockers[i])
	})
}

// each gives each of peers one turn a round.
func (b *Bench) each(ctx context.Context, part string, size, rounds int, peers []Peer,
	turn func(ctx context.Context, i int) (Values, error)) (results, error) {
	var all results
	for round := range rounds {
		fmt.Fprintf(b.Log, "%s %d: round %d of %d\n", part, size, round+1, rounds)
		for n := range peers {
			i := (n + round) % len(peers)
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			// Nobody pays for the garbage of the one before.
			runtime.GC()
			var v Values
			var err error
			pprof.Do(ctx, pprof.Labels("peer", peers[i].Name, "case", part), func(ctx context.Context) {
				v, err = turn(ctx, i)
			})
			if err != nil {
				return nil, fmt.Errorf("%s: %w", peers[i].Name, err)
			}
			if strings.HasPrefix(peers[i].Name, ours) {
				b.wrong += int(v["violations"])
			}
			r := result{part, size, peers[i].Name, round, v}
			b.out.line(r)
			all = append(all, r)
		}
	}
	return all, nil
}

// bill is what a turn has cost.
type bill struct {
	asked
	client float64 // seconds of processor time of this process
}

// price does a turn and says what it cost.
func (b *Bench) price(p Peer, turn func() error) (bill, error) {
	before, err := readStats(b.server)
	if err != nil {
		return bill{}, err
	}
	cpu := cpuTime()
	if err := turn(); err != nil {
		return bill{}, err
	}
	cost := bill{client: (cpuTime() - cpu).Seconds()}
	after, err := readStats(b.server)
	cost.asked = after.since(before, p.Direct)
	return cost, err
}

// per adds to v what each of n things has cost.
func (c bill) per(n float64, p Peer, v Values) {
	v["client_us"] = 1e6 * c.client / n
	if p.Redis {
		v["requests"] = c.requests / n
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
