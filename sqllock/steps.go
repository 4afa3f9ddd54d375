package sqllock

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/driverutil"
)

// steps are the steps of a Backend. They are alike on all databases; store makes them. A step
// that took effect returns what happened besides its answer, also when the answer is an error
// such as driver.GoneError.
type steps struct {
	config
	store
	text func(string) any // as an argument
}

// sink takes the rows of a step. They count only if the step succeeds.
type sink interface {
	begin() // is called before each attempt
	add(r *row) error
}

// step makes a step that changes a line. If its outcome is unknown, those who wait in that
// line read it again.
func (s *steps) step(ctx context.Context, what, key, step string, args ...any) (answer, error) {
	a := answer{store: s.name, ref: driverutil.ClaimRef{Key: key}}
	broke, err := s.call(ctx, what, key, &a, step, args...)
	if err != nil {
		return answer{effects: effects{touched: []string{key}}}, err
	}
	a.broke = broke
	return a, nil
}

// enter answers a claim.
func (s *steps) enter(ctx context.Context, c *driver.Claim) (driver.Ticket, effects, error) {
	if free, ok := s.store.(freeStore); ok {
		switch t, done, err := free.enterFree(ctx, c); {
		case err != nil:
			return t, effects{touched: []string{c.Key}}, err
		case done:
			return t, effects{}, nil
		}
	}
	a, err := s.step(ctx, "enter the line of", c.Key, "enter",
		[]byte(c.Key), s.text(c.ID), c.Capacity, c.Weight, c.TTL.Microseconds(), c.NoWait, c.Span, s.node,
		s.text(c.Owner), s.text(c.Note))
	if err != nil {
		return driver.Ticket{}, a.effects, err
	}
	t, err := a.entered(c)
	return t, a.effects, err
}

// renew starts the leases of ts again, so many in each step as the store takes.
func (s *steps) renew(ctx context.Context, ts []driver.Ticket) []error {
	// Two programs that renew the same claims lock them in one order.
	order := make([]int, len(ts))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int {
		return cmp.Or(cmp.Compare(ts[i].Key, ts[j].Key), cmp.Compare(ts[i].Token, ts[j].Token))
	})
	errs := make([]error, len(ts))
	for some := range slices.Chunk(order, s.renewAtOnce()) {
		list := make([]driver.Ticket, len(some))
		for i, n := range some {
			list[i] = ts[n]
		}
		a, err := s.step(ctx, "renew leases", "", "renew", s.leases(list)...)
		if err == nil {
			err = a.outcome()
		}
		for i, n := range some {
			errs[n] = cmp.Or(err, a.lost[int64(i+1)])
		}
	}
	return errs
}

func (s *steps) leave(ctx context.Context, t *driver.Ticket, e driver.Exit) (effects, error) {
	if free, ok := s.store.(freeStore); ok && e == (driver.Exit{}) {
		switch done, err := free.leaveFree(ctx, t); {
		case err != nil:
			return effects{touched: []string{t.Key}}, err
		case done:
			return effects{}, nil
		}
	}
	var tombstone int64
	if e.Tombstone {
		tombstone = clampTTL(max(t.TTL, minTombstone)).Microseconds()
	}
	linger := lingerMicros(e.Linger)
	if e.IfWaiting {
		linger = -1
	}
	a, err := s.step(ctx, "leave the line of", t.Key, "leave", []byte(t.Key), s.text(t.ID), []byte(e.Mark),
		linger, tombstone, s.node)
	return a.ended(err)
}

// ended is the answer of a step that ends a claim. If the claim is gone, those who wait in its line
// read it again: an earlier attempt may have ended it, and nobody may have heard whom it granted.
func (a *answer) ended(err error) (effects, error) {
	err = cmp.Or(err, a.outcome())
	if driver.Gone(err) {
		a.touched = append(a.touched, a.ref.Key)
	}
	return a.effects, err
}

// lingerMicros is d as the steps read it: in µs, 0 for none.
func lingerMicros(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return clampTTL(d).Microseconds()
}

// adopt gives the claim of t to by.
func (s *steps) adopt(ctx context.Context, t *driver.Ticket, by *driver.Claim) (driver.Ticket, effects, error) {
	a, err := s.step(ctx, "adopt a claim of", t.Key, "adopt", []byte(t.Key), s.text(by.ID), s.text(t.ID),
		by.TTL.Microseconds(), s.text(by.Owner), s.text(by.Note), s.node)
	if err != nil {
		return driver.Ticket{}, a.effects, err
	}
	got, err := a.entered(by)
	return got, a.effects, err
}

// purge removes what has expired from a line, and grants what fits.
func (s *steps) purge(ctx context.Context, key string) (effects, error) {
	a, err := s.step(ctx, "purge the line of", key, "purge", []byte(key), s.node)
	return a.effects, err
}

// standing describes the grant of the claim of t, or says why there is none.
func (s *steps) standing(ctx context.Context, t *driver.Ticket) (*grant, driver.GoneError, error) {
	a, err := s.step(ctx, "read the line of", t.Key, "standing", []byte(t.Key), s.text(t.ID))
	switch {
	case err != nil:
		return nil, driver.GoneError{}, err
	case len(a.granted) > 0:
		return &a.granted[0], driver.GoneError{}, nil
	case a.last > 0 && a.last < t.Token:
		return nil, driver.GoneError{}, errOld
	}
	gone, _ := a.refuse.(driver.GoneError)
	return nil, gone, nil
}

// rejoin says how the claim of t stands by a step that writes, where reads are answered by standbys.
// An Enter finds the claim. If it has made another one instead, that one leaves.
func (s *steps) rejoin(ctx context.Context, t *driver.Ticket) (driver.Ticket, effects, error) {
	got, e, err := s.enter(ctx, &t.Claim)
	if err == nil && got.Token != t.Token {
		var left effects
		left, err = s.leave(ctx, &got, driver.Exit{})
		e.granted, e.broken = append(e.granted, left.granted...), append(e.broken, left.broken...)
		e.touched, e.strangers = append(e.touched, left.touched...), e.strangers || left.strangers
		if err == nil || driver.Gone(err) {
			err = driver.GoneError{}
		}
	}
	return got, e, err
}

// news returns what other processes did to claims of this node: grants, as long as they were not
// renewed since, and claims that were broken.
func (s *steps) news(ctx context.Context) (effects, error) {
	a, err := s.step(ctx, "read the news", "", "news", s.node)
	return a.effects, err
}

// line reads one line.
func (s *steps) line(ctx context.Context, key string) (snapshot, error) {
	return s.read(ctx, "read the line of", key, "line", []byte(key))
}

// next reads the first line with claims, dead or alive, whose key is at least from and
// less than to. Without such a line the key of its answer is empty.
//
// The bounds are longer than keys may be: a key that long is above every other one that
// begins with the same bytes.
func (s *steps) next(ctx context.Context, from, to []byte) (snapshot, error) {
	return s.read(ctx, "list the lines", "", "next", from, to)
}

func (s *steps) read(ctx context.Context, what, key, step string, args ...any) (snapshot, error) {
	l := snapshot{key: key}
	_, err := s.call(ctx, what, key, &l, step, args...)
	return l, err
}

// sweep forgets some idle lines.
func (s *steps) sweep(ctx context.Context) (effects, error) {
	a, err := s.step(ctx, "sweep", "", "sweep", int64(sweepLines), s.node)
	return a.effects, err
}
