// Command stores measures fencelock on each of its stores in one run: what a free lock
// costs, how soon a released lock is with the next program, and how many locks a
// second one program gets. It starts all servers itself, on the loopback device, as
// durable as they are by default: each answer is on the disk where the store promises
// that.
//
//	go run ./cmd/stores            about three minutes
//	go run ./cmd/stores -rounds 1  a look
//
// The floor is the least that a lock can cost on that store through the same client:
// one write that takes it, one that gives it back. Ratios are taken within a round and
// are what to trust; times depend on the machine, and on its disk most of all.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"math"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
)

// store is one place to keep locks in.
type store struct {
	name string
	// start runs what the store needs. open then opens one more view of it, as another
	// program would.
	start func(ctx context.Context, dir string) (*running, error)
}

// running is a store that runs.
type running struct {
	open  func() (driver.Backend, func(), error)
	floor func(ctx context.Context) error // one lock and its release, the least possible; nil for none
	stop  func()
}

func main() {
	rounds := flag.Int("rounds", 5, "how many `rounds` to take the median of")
	turn := flag.Duration("turn", time.Second, "how long each measurement takes")
	only := flag.String("store", "", "only these `stores`, by commas")
	flag.Parse()
	mysql.SetLogger(log.New(io.Discard, "", 0))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *rounds, *turn, *only); err != nil {
		fmt.Fprintln(os.Stderr, "stores:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, rounds int, turn time.Duration, only string) error {
	dir, err := os.MkdirTemp("", "fencelock-stores")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil { // servers that run as another user pass through
		return err
	}

	var all []*subject
	for _, s := range stores() {
		if only != "" && !slices.Contains(strings.Split(only, ","), s.name) {
			continue
		}
		own, err := os.MkdirTemp(dir, "")
		if err != nil {
			return err
		}
		r, err := s.start(ctx, own)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		defer r.stop()
		all = append(all, &subject{name: s.name, running: r})
	}
	fmt.Printf("%s; %s/%s, %d CPUs; %s.\n\n", time.Now().Format(time.DateOnly), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version())
	for round := range rounds {
		for i := range all {
			s := all[(i+round)%len(all)]
			fmt.Fprintf(os.Stderr, "round %d of %d: %s\n", round+1, rounds, s.name)
			if err := s.measure(ctx, turn); err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
		}
	}
	fmt.Println("| store | free lock and release, p50 | × floor | p99 | hand-over to another program, p50 | p99 | locks/s, 32 keys at once |")
	fmt.Println("| --- | --: | --: | --: | --: | --: | --: |")
	for _, s := range all {
		fmt.Printf("| %s | %s | %s | %s | %s | %s | %.0f |\n", s.name, micros(s.free), ratio(s.ratio), micros(s.free99), micros(s.over), micros(s.over99), middle(s.many))
	}
	return nil
}

// subject is a store and what was measured on it, a value for each round.
type subject struct {
	name string
	*running
	free, free99, ratio, over, over99, many []float64
}

func (s *subject) measure(ctx context.Context, turn time.Duration) error {
	a, _, endA, err := s.client()
	if err != nil {
		return err
	}
	defer endA()
	b, lines, endB, err := s.client()
	if err != nil {
		return err
	}
	defer endB()

	// The floor and the lock take turns of a few pairs each, so that both see the same
	// machine.
	var free, floor []time.Duration
	pair := func() error {
		l, err := a.Lock(ctx, "bench/free")
		if err != nil {
			return err
		}
		return l.Release(ctx)
	}
	for range 5 {
		if err := pair(); err != nil {
			return err
		}
	}
	for begun := time.Now(); time.Since(begun) < turn; {
		for range 5 {
			if free, err = timed(free, pair); err != nil {
				return err
			}
		}
		for range 5 {
			if s.floor == nil {
				break
			}
			if floor, err = timed(floor, func() error { return s.floor(ctx) }); err != nil {
				return err
			}
		}
	}
	s.free = append(s.free, at(free, 50))
	s.free99 = append(s.free99, at(free, 99))
	s.ratio = append(s.ratio, at(free, 50)/at(floor, 50))

	over, err := handOvers(ctx, a, b, lines, turn)
	if err != nil {
		return err
	}
	s.over = append(s.over, at(over, 50))
	s.over99 = append(s.over99, at(over, 99))

	n, err := many(ctx, a, turn)
	s.many = append(s.many, n)
	return err
}

// client opens a client, and says whether its store keeps lines.
func (s *subject) client() (_ *fencelock.Client, lines bool, end func(), err error) {
	b, disconnect, err := s.open()
	if err != nil {
		return nil, false, nil, err
	}
	c := fencelock.New(b, &fencelock.Options{HandOff: 1})
	return c, b.Info().Fair, func() {
		c.Close()
		disconnect()
	}, nil
}

// timed adds how long f took.
func timed(to []time.Duration, f func() error) ([]time.Duration, error) {
	begun := time.Now()
	err := f()
	return append(to, time.Since(begun)), err
}

// handOvers passes a lock to and fro between two programs, and returns how long each
// passing took, from the call of Release to the return of Lock.
func handOvers(ctx context.Context, a, b *fencelock.Client, lines bool, turn time.Duration) ([]time.Duration, error) {
	var took []time.Duration
	clients := []*fencelock.Client{a, b}
	held, err := a.Lock(ctx, "bench/over")
	if err != nil {
		return nil, err
	}
	type answer struct {
		lease *fencelock.Lease
		at    time.Time
		err   error
	}
	for i, begun := 1, time.Now(); time.Since(begun) < turn; i++ {
		next := clients[i%2]
		got := make(chan answer, 1)
		go func() {
			l, err := next.Lock(ctx, "bench/over")
			got <- answer{l, time.Now(), err}
		}()
		// It is in line when the line says so. Where there is none it has been refused once
		// by then.
		for lines {
			line, err := a.Line(ctx, "bench/over")
			if err != nil {
				return nil, err
			}
			if len(line.Claims) == 2 {
				break
			}
		}
		time.Sleep(2 * time.Millisecond) // it has gone to sleep
		released := time.Now()
		if err := held.Release(ctx); err != nil {
			return nil, err
		}
		n := <-got
		if n.err != nil {
			return nil, n.err
		}
		took = append(took, n.at.Sub(released))
		held = n.lease
	}
	return took, held.Release(ctx)
}

// many returns how many locks a second 32 goroutines get, each on a key of its own.
func many(ctx context.Context, c *fencelock.Client, turn time.Duration) (float64, error) {
	counts, errs := make([]int, 32), make([]error, 32)
	begun := time.Now()
	var all sync.WaitGroup
	for i := range counts {
		all.Go(func() {
			key := fmt.Sprintf("bench/%d", i)
			for time.Since(begun) < turn && errs[i] == nil {
				l, err := c.Lock(ctx, key)
				if err == nil {
					err = l.Release(ctx)
				}
				errs[i] = err
				counts[i]++
			}
		})
	}
	all.Wait()
	took := time.Since(begun)
	n := 0
	for i := range counts {
		n += counts[i]
		if errs[i] != nil {
			return 0, errs[i]
		}
	}
	return float64(n) / took.Seconds(), nil
}

// at is the given percentile, in µs; NaN of nothing.
func at(ds []time.Duration, p int) float64 {
	if len(ds) == 0 {
		return math.NaN()
	}
	slices.Sort(ds)
	return float64(ds[min(len(ds)*p/100, len(ds)-1)].Nanoseconds()) / 1000
}

func middle(xs []float64) float64 {
	xs = slices.Clone(xs)
	slices.Sort(xs)
	return xs[len(xs)/2]
}

func micros(xs []float64) string {
	x := middle(xs)
	if x >= 10000 {
		return fmt.Sprintf("%.1f ms", x/1000)
	}
	return fmt.Sprintf("%.0f µs", x)
}

func ratio(xs []float64) string {
	if x := middle(xs); !math.IsNaN(x) {
		return fmt.Sprintf("%.2f", x)
	}
	return "–"
}
