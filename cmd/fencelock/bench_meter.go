package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/storeurl"
)

const (
	benchNames = 64
	// benchTTL is how long what a killed bench held stays.
	benchTTL = 10 * time.Second
)

// meter measures a store.
type meter struct {
	stores  []*storeurl.Store
	one     *fencelock.Client   // as a program uses it
	pool    []*fencelock.Client // for many names at once
	a, b    *fencelock.Client   // two programs
	backend driver.Backend      // of one
	info    driver.Info
	names   []string
	seen    *benchView
}

// newMeter connects as two programs would. A pool of a database has two connections here,
// so several make up for those of a server that locks many names at once.
func newMeter(ctx context.Context, s *store) (_ *meter, err error) {
	m := &meter{}
	defer func() {
		if err != nil {
			m.close()
		}
	}()
	s.conns = 2
	many := 1
	switch s.Scheme {
	case "postgres", "postgresql", "mysql", "mariadb":
		many = 8
	}
	connect := func(handOff int) (*fencelock.Client, driver.Backend, error) {
		var open *storeurl.Store
		if s.Private() && len(m.stores) > 0 {
			open = m.stores[0] // nobody else sees it
		} else {
			if open, err = s.connect(ctx, "", firstContact); err != nil {
				return nil, nil, err
			}
			m.stores = append(m.stores, open)
		}
		b := open.Backend
		c, err := fencelock.New(b, &fencelock.Options{TTL: m.ttl(b), HandOff: handOff, Owner: owner()})
		return c, b, err
	}
	if m.one, m.backend, err = connect(0); err != nil {
		return nil, err
	}
	m.pool = []*fencelock.Client{m.one}
	for len(m.pool) < many {
		c, _, err := connect(0)
		if err != nil {
			return nil, err
		}
		m.pool = append(m.pool, c)
	}
	if m.a, _, err = connect(1); err != nil {
		return nil, err
	}
	if m.b, _, err = connect(1); err != nil {
		return nil, err
	}
	m.info = m.backend.Info()
	prefix := "bench-" + strings.ToLower(rand.Text()[:12]) + "/"
	for i := range benchNames {
		m.names = append(m.names, fmt.Sprintf("%s%d", prefix, i))
	}
	m.seen = &benchView{Store: s.String(), Platform: platform(), CPUs: runtime.NumCPU(), Waits: m.info.Fair}
	return m, nil
}

// ttl is the lease to ask for.
func (m *meter) ttl(b driver.Backend) time.Duration {
	info := b.Info()
	ttl := max(benchTTL, info.MinTTL)
	if info.MaxTTL > 0 {
		ttl = min(ttl, info.MaxTTL)
	}
	return ttl
}

func (m *meter) close() {
	closeSoon(func() {
		for _, c := range append(slices.Clone(m.pool), m.a, m.b) {
			if c != nil {
				_ = c.Close()
			}
		}
		for _, open := range m.stores {
			open.Close()
		}
	})
}

// run measures one thing after the other, each for a part of length.
func (m *meter) run(ctx context.Context, length time.Duration) error {
	// What only the first call costs, a table or a script that is not cached, is paid.
	if err := m.pair(ctx, m.one, m.names[0]); err != nil {
		return err
	}
	part := length / 6
	var err error
	if m.seen.Request, err = m.repeat(ctx, part/2, func() (time.Duration, error) {
		return timed(func() error { return m.ask(ctx) })
	}); err != nil {
		return err
	}
	if m.seen.Free, err = m.repeat(ctx, part, func() (time.Duration, error) {
		return timed(func() error { return m.pair(ctx, m.one, m.names[0]) })
	}); err != nil {
		return err
	}
	if m.seen.Many, err = m.together(ctx, part, func(i int) (*fencelock.Client, string) {
		return m.pool[i%len(m.pool)], m.names[i]
	}); err != nil {
		return err
	}
	if m.seen.Inside, err = m.together(ctx, part, func(int) (*fencelock.Client, string) {
		return m.one, m.names[0]
	}); err != nil {
		return err
	}
	if m.seen.Between, err = m.between(ctx, part); err != nil {
		return err
	}
	return m.renewals(ctx, part)
}

func (m *meter) pair(ctx context.Context, c *fencelock.Client, name string) error {
	l, err := c.Lock(ctx, name)
	if err != nil {
		return err
	}
	return l.Release(ctx)
}

// ask is a question about a name that nobody has: one request, and nothing is written.
func (m *meter) ask(ctx context.Context) error {
	_, err := m.one.Line(ctx, m.names[benchNames-1])
	return err
}

// repeat calls f for d, and once at least.
func (m *meter) repeat(ctx context.Context, d time.Duration, f func() (time.Duration, error)) (quantiles, error) {
	var all []time.Duration
	for begun := time.Now(); len(all) == 0 || time.Since(begun) < d && len(all) < 1<<20; {
		took, err := f()
		if err != nil {
			return quantiles{}, err
		}
		if ctx.Err() != nil {
			return quantiles{}, ctx.Err()
		}
		all = append(all, took)
	}
	slices.Sort(all)
	at := func(percent int) float64 {
		rank := int(math.Ceil(float64(len(all)) * float64(percent) / 100))
		return float64(all[max(rank, 1)-1].Nanoseconds()) / 1000
	}
	return quantiles{P50: at(50), P99: at(99), N: len(all)}, nil
}

func timed(f func() error) (time.Duration, error) {
	begun := time.Now()
	err := f()
	return time.Since(begun), err
}

// together has 64 goroutines lock and release for d, and returns how often they did in a
// second. Who still waits then gives up.
func (m *meter) together(
	ctx context.Context, d time.Duration, which func(i int) (*fencelock.Client, string),
) (float64, error) {
	// The first of each is there before it counts.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	counts, errs := make([]int, benchNames), make([]error, benchNames)
	begun := time.Now()
	var all sync.WaitGroup
	for i := range benchNames {
		client, name := which(i)
		all.Go(func() {
			for time.Since(begun) < d && errs[i] == nil {
				if errs[i] = m.pair(ctx, client, name); errs[i] == nil {
					counts[i]++
				}
			}
		})
	}
	// A store whose waiters ask again and again may let one of them wait for long: what
	// is left of the time is no part of what was measured.
	over := time.AfterFunc(d+d/2, cancel)
	all.Wait()
	took := time.Since(begun)
	stopped := !over.Stop()
	n := 0
	for i := range counts {
		n += counts[i]
		if errs[i] != nil && !(stopped && errors.Is(errs[i], context.Canceled)) {
			return 0, errs[i]
		}
	}
	return float64(n) / min(took, d+d/2).Seconds(), nil
}

// between passes a lock to and fro between two programs, and measures from the call of
// Release in one to the return of Lock in the other.
func (m *meter) between(ctx context.Context, d time.Duration) (quantiles, error) {
	name := m.names[1]
	held, err := m.a.Lock(ctx, name)
	if err != nil {
		return quantiles{}, err
	}
	defer func() { _ = held.Release(ctx) }() // the last one
	type answer struct {
		lease *fencelock.Lease
		at    time.Time
		err   error
	}
	turn := 0
	return m.repeat(ctx, d, func() (time.Duration, error) {
		turn++
		next := []*fencelock.Client{m.a, m.b}[turn%2]
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		got := make(chan answer, 1)
		go func() {
			l, err := next.Lock(ctx, name)
			got <- answer{l, time.Now(), err}
		}()
		// It is in line when the line says so. Where there is none it has been refused once
		// by then.
		for m.info.Fair {
			line, err := m.a.Line(ctx, name)
			if err != nil {
				cancel()
				if n := <-got; n.err == nil {
					_ = n.lease.Release(ctx)
				}
				return 0, err
			}
			if len(line.Claims) == 2 {
				break
			}
		}
		time.Sleep(2 * time.Millisecond) // it has gone to sleep
		released := time.Now()
		err := held.Release(ctx)
		if err != nil {
			cancel()
		}
		n := <-got
		if n.err == nil {
			held = n.lease
		}
		return n.at.Sub(released), cmp.Or(err, n.err)
	})
}

// renewals renews leases on all names in one call, as a Client does for what it holds.
func (m *meter) renewals(ctx context.Context, d time.Duration) (err error) {
	var tickets []driver.Ticket
	var mu sync.Mutex
	defer func() {
		// They go whatever became of ctx, or they would stay for a lease.
		free, cancel := context.WithTimeout(context.WithoutCancel(ctx), firstContact)
		defer cancel()
		_ = atOnce(len(tickets), func(i int) error { return m.backend.Leave(free, tickets[i], driver.Exit{}) })
	}()
	err = atOnce(benchNames, func(i int) error {
		t, err := m.backend.Enter(ctx, driver.Claim{
			Key: m.names[i], ID: rand.Text(), Owner: owner(), Capacity: driver.RW, Weight: driver.RW,
			TTL: m.ttl(m.backend), NoWait: true, Span: 1,
		})
		if err == nil {
			mu.Lock()
			defer mu.Unlock()
			tickets = append(tickets, t)
		}
		return err
	})
	if err != nil {
		return err
	}
	m.seen.Leases = len(tickets)
	m.seen.Renewal, err = m.repeat(ctx, d, func() (time.Duration, error) {
		return timed(func() error { return errors.Join(m.backend.Renew(ctx, tickets)...) })
	})
	return err
}

// atOnce calls f for 0 to n-1, eight at a time.
func atOnce(n int, f func(i int) error) error {
	errs := make([]error, n)
	var all sync.WaitGroup
	for k := range 8 {
		all.Go(func() {
			for i := k; i < n; i += 8 {
				errs[i] = f(i)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}
