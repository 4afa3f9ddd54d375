package doctor

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// Outcome counts the rounds of a Race. A store that excludes has neither Several nor NotRisen.
type Outcome struct {
	Racers     int
	Rounds     int   // that were counted; One, None and Several add up to it
	One        int   // rounds that one racer won
	None       int   // rounds that nobody won
	Several    int   // rounds that more than one racer won
	Most       int   // the most winners of one round
	NotRisen   int   // grants whose token was not larger than those of all rounds before
	Slow       int   // rounds that were not counted: a lease may have ended in them
	Unanswered int   // requests without an answer
	Err        error // of the last request without an answer
}

// Excludes reports whether no lock was granted twice, and each token was larger than the one before. It is
// false if nobody ever won.
func (o *Outcome) Excludes() bool { return o.One > 0 && o.Several == 0 && o.NotRisen == 0 }

// Race shows whether a store lets one client win: some stores accept a condition and do not apply it, and some
// addresses lead to two stores. In each round so many racers wait for one signal, and then try to take one lock
// with a random name; after a round without a winner, another one. Racer i asks backends[i%len(backends)]. Each
// Backend should have connections of its own. The winners release the lock before the next round.
//
// A round costs one request for each racer, and one for each winner. The error is for numbers that cannot
// be, and for the end of ctx. A race shows nothing about failures of servers.
func Race(ctx context.Context, backends []driver.Backend, racers, rounds int) (Outcome, error) {
	if len(backends) == 0 || racers < 2 || racers > 1000 || rounds < 1 {
		return Outcome{}, fmt.Errorf("doctor: %d racers, %d rounds and %d backends; want 2 to 1000, 1 and 1 at least",
			racers, rounds, len(backends))
	}
	r := race{backends: backends, key: raceKey(), ttl: leaseOf(backends[0])}
	r.Racers = racers
	for range rounds {
		r.round(ctx)
		if ctx.Err() != nil {
			return r.Outcome, fmt.Errorf("doctor: %w", ctx.Err())
		}
	}
	return r.Outcome, nil
}

func raceKey() string { return "fencelock/doctor/" + rand.Text() }

// race is one call of Race.
type race struct {
	Outcome
	backends []driver.Backend
	key      string
	ttl      time.Duration
	last     int64 // the largest token of the rounds before, of key
}

// try holds the result of one racer.
type try struct {
	ticket  driver.Ticket
	won     bool
	unknown bool
	err     error
}

// round is one race. Every racer has had its answer before a winner leaves.
func (r *race) round(ctx context.Context) {
	tries := make([]try, r.Racers)
	var ready, done sync.WaitGroup
	start := make(chan struct{})
	ready.Add(len(tries))
	for i := range tries {
		done.Go(func() {
			c := r.claim()
			ready.Done()
			<-start
			tries[i] = r.enter(ctx, i, c)
		})
	}
	ready.Wait()
	began := time.Now()
	close(start)
	done.Wait()
	slow := time.Since(began) > r.ttl/2
	r.leave(ctx, tries)
	r.count(tries, slow)
}

func (r *race) claim() driver.Claim {
	return driver.Claim{
		Key: r.key, ID: rand.Text(), Owner: "fencelock doctor", Capacity: driver.RW, Weight: driver.RW, TTL: r.ttl,
		NoWait: true, Span: 1,
	}
}

func (r *race) backend(racer int) driver.Backend { return r.backends[racer%len(r.backends)] }

// enter is the try of one racer.
func (r *race) enter(ctx context.Context, racer int, c driver.Claim) try {
	t := try{ticket: driver.Ticket{Claim: c}}
	err := within(ctx, func(ctx context.Context) error {
		got, err := r.backend(racer).Enter(ctx, c)
		if err == nil {
			t.ticket, t.won = got, got.Granted
		}
		return err
	})
	if err != nil && !errors.As(err, new(*driver.BusyError)) {
		t.unknown, t.err = !errors.Is(err, driver.ErrRefused), err
	}
	return t
}

// leave takes the claims of winners out of the line, and those that may still arrive.
func (r *race) leave(ctx context.Context, tries []try) {
	var all sync.WaitGroup
	defer all.Wait()
	for i, t := range tries {
		if t.won || t.unknown {
			all.Go(func() {
				_ = within(context.WithoutCancel(ctx), func(ctx context.Context) error { // else its lease ends
					return r.backend(i).Leave(ctx, t.ticket, driver.Exit{Tombstone: t.unknown})
				})
			})
		}
	}
}

// count notes a round.
func (r *race) count(tries []try, slow bool) {
	won, last := 0, r.last
	for _, t := range tries {
		if t.err != nil {
			r.Unanswered++
			r.Err = t.err
		}
		if !t.won {
			continue
		}
		won++
		if t.ticket.Token <= r.last {
			r.NotRisen++
		}
		last = max(last, t.ticket.Token)
	}
	r.last = last
	if slow {
		r.Slow++
		return
	}
	r.Rounds++
	r.Most = max(r.Most, won)
	switch won {
	case 0:
		r.None++
		r.key, r.last = raceKey(), 0 // the lock may still be taken, by a claim that could not leave
	case 1:
		r.One++
	default:
		r.Several++
	}
}
