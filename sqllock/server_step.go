package sqllock

import (
	"cmp"
	"context"
	"slices"

	"github.com/fencelock/fencelock/driver"
)

// step makes a step that changes a line. If its outcome is unknown, those who wait in that
// line read it again.
func (s *server) step(ctx context.Context, what, key, step string, args ...any) (answer, error) {
	var a answer
	begin := func() { a = answer{store: s.name, ref: driver.ClaimRef{Key: key}} }
	broke, err := s.call(ctx, what, key, begin, a.add, step, args...)
	if err != nil {
		return answer{effects: effects{touched: []string{key}}}, err
	}
	a.broke = broke
	return a, nil
}

// enter joins a line, or finds the claim that is there.
func (s *server) enter(ctx context.Context, c *driver.Claim, reenter bool) (driver.Ticket, effects, error) {
	args := []any{
		[]byte(c.Key), []byte(c.ID), c.Capacity, c.Weight, c.TTL.Microseconds(), c.NoWait, c.Span, s.node,
		[]byte(c.Owner), []byte(c.Note),
	}
	if c.Ballot != 0 {
		m := s.member
		args = append(args, c.Ballot, reenter, m.Skew.Microseconds(), m.MaxTTL.Microseconds(), m.Durable, m.String())
	}
	a, err := s.step(ctx, "enter the line of", c.Key, "enter", args...)
	if err != nil {
		return driver.Ticket{}, a.effects, err
	}
	t, err := a.entered(c)
	return t, a.effects, err
}

// initialise ends the quarantine of a member.
func (s *server) initialise(ctx context.Context) error {
	m := s.member
	a, err := s.step(ctx, "initialise", "", "initialise", m.MaxTTL.Microseconds(), m.Durable, m.String())
	return cmp.Or(err, a.refuse)
}

// leave takes a claim out of its line.
func (s *server) leave(ctx context.Context, t *driver.Ticket, e driver.Exit) (effects, error) {
	var linger, tombstone int64
	if e.Linger > 0 {
		linger = clampTTL(e.Linger).Microseconds()
	}
	if t.Token == 0 {
		tombstone = clampTTL(t.TTL).Microseconds()
	}
	a, err := s.step(ctx, "leave the line of", t.Key, "leave", []byte(t.Key), []byte(t.ID), []byte(e.Mark), linger,
		tombstone, s.node)
	return a.effects, cmp.Or(err, a.outcome())
}

// end is Break.
func (s *server) end(ctx context.Context, key string, token int64, reason string) (effects, error) {
	a, err := s.step(ctx, "break a claim of", key, "break", []byte(key), token, []byte(reason), s.node)
	return a.effects, cmp.Or(err, a.outcome())
}

// purge removes what has expired from a line, and grants what fits.
func (s *server) purge(ctx context.Context, key string) (effects, error) {
	a, err := s.step(ctx, "purge the line of", key, "purge", []byte(key), s.node)
	return a.effects, err
}

// renew starts the leases of ts again, so many in each round trip as the engine says.
func (s *server) renew(ctx context.Context, ts []driver.Ticket) ([]error, effects) {
	// Two programs that renew the same claims lock them in one order.
	order := make([]int, len(ts))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int {
		return cmp.Or(cmp.Compare(ts[i].Key, ts[j].Key), cmp.Compare(ts[i].Token, ts[j].Token))
	})
	errs := make([]error, len(ts))
	for some := range slices.Chunk(order, s.engine.renewAtOnce()) {
		list := make([]driver.Ticket, len(some))
		for i, n := range some {
			list[i] = ts[n]
		}
		a, err := s.step(ctx, "renew leases", "", "renew", s.engine.leases(list)...)
		if err == nil {
			err = a.outcome()
		}
		for i, n := range some {
			errs[n] = cmp.Or(err, a.lost[int64(i+1)])
		}
	}
	return errs, effects{}
}

// standing describes the grant of a claim, or says why there is none.
func (s *server) standing(ctx context.Context, key, id string) (*grant, driver.ErrGone, error) {
	a, err := s.step(ctx, "read the line of", key, "standing", []byte(key), []byte(id))
	if err != nil {
		return nil, driver.ErrGone{}, err
	}
	if len(a.granted) > 0 {
		return &a.granted[0], driver.ErrGone{}, nil
	}
	gone, _ := a.refuse.(driver.ErrGone)
	return nil, gone, nil
}

// news reads what others have done to claims of this node.
func (s *server) news(ctx context.Context) (effects, error) {
	a, err := s.step(ctx, "read the news", "", "news", s.node)
	return a.effects, err
}

// line reads one line.
func (s *server) line(ctx context.Context, key string) (snapshot, effects, error) {
	return s.read(ctx, "read the line of", key, "line", []byte(key))
}

// next reads the next line with claims. The bounds are longer than keys may be: a key that
// long is above every other one that begins with the same bytes.
func (s *server) next(ctx context.Context, from, to []byte) (snapshot, effects, error) {
	return s.read(ctx, "list the lines", "", "next", from, to)
}

func (s *server) read(ctx context.Context, what, key, step string, args ...any) (snapshot, effects, error) {
	var l snapshot
	_, err := s.call(ctx, what, key, func() { l = snapshot{key: key} }, func(r *row) error {
		if r.now == 0 {
			return errShort
		}
		return l.add(r)
	}, step, args...)
	return l, effects{}, err
}

// sweep forgets some idle lines.
func (s *server) sweep(ctx context.Context) (effects, error) {
	a, err := s.step(ctx, "sweep", "", "sweep", int64(sweepLines), s.node)
	return a.effects, err
}
