package doctor

import (
	"context"
	"crypto/rand"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// Latency is how long requests took, each a renewal of one lock.
type Latency struct {
	N      int // how many were made
	Failed int // how many of them had no answer, or an error
	P50    time.Duration
	P99    time.Duration
	P999   time.Duration // the slowest, if N is less than a thousand
}

// Clock compares the clock of the store with the clock of this host.
type Clock struct {
	Offset time.Duration // by how much the store's clock is ahead
	Rate   float64       // seconds of the store's clock in a second of this host's
	Error  float64       // by how much Rate may be wrong
}

// measureTTL is how long the lock of a Check that is killed stays.
const measureTTL = 10 * time.Second

// requestTimeout bounds one request. A renewal of most leases is given up by then.
const requestTimeout = 5 * time.Second

// measure takes a lock, renews it and releases it.
func (c *check) measure(ctx context.Context) error {
	name := "fencelock/doctor/" + rand.Text()
	begin, held, err := c.take(ctx, name)
	if err != nil {
		return err
	}
	renewing := c.renew(ctx, held)
	if err := c.leave(ctx, held); renewing == nil {
		renewing = err
	}
	if renewing != nil || begin.since.IsZero() {
		return renewing
	}
	end, held, err := c.take(ctx, name+"/end")
	if err != nil {
		return err
	}
	if !end.since.IsZero() {
		c.report.Clock = compare(begin, end)
	}
	return c.leave(ctx, held)
}

// moment is a grant: when it was asked for and answered here, and when it was by the clock
// of the store, if the store tells.
type moment struct{ sent, answered, since time.Time }

// take takes a lock that nobody else wants.
func (c *check) take(ctx context.Context, key string) (m moment, t driver.Ticket, err error) {
	ttl := leaseOf(c.backend)
	m.sent = time.Now()
	err = within(ctx, func(ctx context.Context) error {
		t, err = c.backend.Enter(ctx, driver.Claim{
			Key: key, ID: rand.Text(), Owner: "fencelock doctor", Capacity: driver.RW, Weight: driver.RW, TTL: ttl,
			NoWait: true, Span: 1,
		})
		return err
	})
	m.answered = time.Now()
	if err != nil || !c.serverTime {
		return m, t, err
	}
	err = within(ctx, func(ctx context.Context) error {
		line, err := c.backend.Line(ctx, key)
		if err == nil && len(line.Claims) == 1 {
			m.since = line.Claims[0].Since
		}
		return err
	})
	if err != nil {
		err = errors.Join(err, c.leave(ctx, t))
	}
	return m, t, err
}

// leaseOf returns the lease of a lock of this package.
func leaseOf(b driver.Backend) time.Duration {
	info := b.Info()
	ttl := max(measureTTL, info.MinTTL)
	if info.MaxTTL > 0 {
		ttl = min(ttl, info.MaxTTL)
	}
	return ttl
}

// leave releases a lock, whatever became of ctx.
func (c *check) leave(ctx context.Context, t driver.Ticket) error {
	return within(context.WithoutCancel(ctx), func(ctx context.Context) error {
		return c.backend.Leave(ctx, t, driver.Exit{})
	})
}

func within(ctx context.Context, f func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return f(ctx)
}

// renew renews a lock, at even times. It ends early if the lock is gone, or if the store is so
// slow that it takes a few seconds longer than For.
func (c *check) renew(ctx context.Context, t driver.Ticket) error {
	pause := time.NewTicker(max(c.For/time.Duration(c.Requests), 1))
	defer pause.Stop()
	var took []time.Duration
	r := &c.report.Requests
	for begun := time.Now(); r.N < c.Requests && time.Since(begun) < c.For+requestTimeout; r.N++ {
		select {
		case <-pause.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		sent := time.Now()
		err := within(ctx, func(ctx context.Context) error { return c.backend.Renew(ctx, []driver.Ticket{t})[0] })
		took = append(took, time.Since(sent))
		if driver.Gone(err) {
			return err
		}
		if err != nil {
			r.Failed++
			c.last = err
		}
	}
	slices.Sort(took)
	at := func(q float64) time.Duration { return took[max(int(math.Ceil(q*float64(len(took)))), 1)-1] }
	r.P50, r.P99, r.P999 = at(0.5), at(0.99), at(0.999)
	if r.Failed == r.N {
		return c.last
	}
	return nil
}

// granularity is the unit in which the coarsest store tells the time.
const granularity = time.Millisecond

// compare finds the rate of the store's clock between two moments. Each happened at the store
// between its sending and its answer.
func compare(a, b moment) *Clock {
	theirs := b.since.Sub(a.since)
	slowest := float64(theirs-granularity) / float64(b.answered.Sub(a.sent))
	fastest := float64(theirs+granularity) / float64(b.sent.Sub(a.answered))
	middle := a.sent.Add(a.answered.Sub(a.sent) / 2)
	return &Clock{Offset: a.since.Sub(middle.Round(0)), Rate: (slowest + fastest) / 2, Error: (fastest - slowest) / 2}
}
