package sqllock

import (
	"cmp"
	"context"

	"github.com/fencelock/fencelock/driver"
)

// steps are the steps that are alike on all databases. store says what each does.
type steps struct {
	config
	caller
	text func(string) any // as an argument
}

// caller makes a step, again if it was undone. It reports whether a connection broke before,
// which may have been after the step.
type caller interface {
	call(ctx context.Context, what, key string, into sink, step string, args ...any) (broke bool, err error)
}

// sink takes the rows of a step. They count only if the step succeeds.
type sink interface {
	begin() // is called before each attempt
	add(r *row) error
}

// step makes a step that changes a line. If its outcome is unknown, those who wait in that
// line read it again.
func (s *steps) step(ctx context.Context, what, key, step string, args ...any) (answer, error) {
	a := answer{store: s.name, ref: driver.ClaimRef{Key: key}}
	broke, err := s.call(ctx, what, key, &a, step, args...)
	if err != nil {
		return answer{effects: effects{touched: []string{key}}}, err
	}
	a.broke = broke
	return a, nil
}

func (s *steps) enter(ctx context.Context, c *driver.Claim, reenter bool) (driver.Ticket, effects, error) {
	args := []any{
		[]byte(c.Key), s.text(c.ID), c.Capacity, c.Weight, c.TTL.Microseconds(), c.NoWait, c.Span, s.node,
		s.text(c.Owner), s.text(c.Note),
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

func (s *steps) initialise(ctx context.Context) error {
	m := s.member
	a, err := s.step(ctx, "initialise", "", "initialise", m.MaxTTL.Microseconds(), m.Durable, m.String())
	return cmp.Or(err, a.refuse)
}

func (s *steps) leave(ctx context.Context, t *driver.Ticket, e driver.Exit) (effects, error) {
	var linger, tombstone int64
	if e.Linger > 0 {
		linger = clampTTL(e.Linger).Microseconds()
	}
	if t.Token == 0 {
		tombstone = clampTTL(t.TTL).Microseconds()
	}
	a, err := s.step(ctx, "leave the line of", t.Key, "leave", []byte(t.Key), s.text(t.ID), []byte(e.Mark), linger,
		tombstone, s.node)
	return a.effects, cmp.Or(err, a.outcome())
}

func (s *steps) end(ctx context.Context, key string, token int64, reason string) (effects, error) {
	a, err := s.step(ctx, "break a claim of", key, "break", []byte(key), token, s.text(reason), s.node)
	return a.effects, cmp.Or(err, a.outcome())
}

func (s *steps) purge(ctx context.Context, key string) (effects, error) {
	a, err := s.step(ctx, "purge the line of", key, "purge", []byte(key), s.node)
	return a.effects, err
}

func (s *steps) standing(ctx context.Context, key, id string) (*grant, driver.ErrGone, error) {
	a, err := s.step(ctx, "read the line of", key, "standing", []byte(key), s.text(id))
	if err != nil {
		return nil, driver.ErrGone{}, err
	}
	if len(a.granted) > 0 {
		return &a.granted[0], driver.ErrGone{}, nil
	}
	gone, _ := a.refuse.(driver.ErrGone)
	return nil, gone, nil
}

func (s *steps) news(ctx context.Context) (effects, error) {
	a, err := s.step(ctx, "read the news", "", "news", s.node)
	return a.effects, err
}

func (s *steps) line(ctx context.Context, key string) (snapshot, effects, error) {
	return s.read(ctx, "read the line of", key, "line", []byte(key))
}

// The bounds are longer than keys may be: a key that long is above every other one that
// begins with the same bytes.
func (s *steps) next(ctx context.Context, from, to []byte) (snapshot, effects, error) {
	return s.read(ctx, "list the lines", "", "next", from, to)
}

func (s *steps) read(ctx context.Context, what, key, step string, args ...any) (snapshot, effects, error) {
	l := snapshot{key: key}
	_, err := s.call(ctx, what, key, &l, step, args...)
	return l, effects{}, err
}

func (s *steps) sweep(ctx context.Context) (effects, error) {
	a, err := s.step(ctx, "sweep", "", "sweep", int64(sweepLines), s.node)
	return a.effects, err
}
