package sqllock

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// idBytes is how long an id may be. The core draws 32 hexadecimal digits.
const idBytes = 64

// enter joins a line, or finds the claim that is there.
func (s *mysql) enter(ctx context.Context, c *driver.Claim) (driver.Ticket, effects, error) {
	if len(c.ID) > idBytes {
		return driver.Ticket{}, effects{}, permanent(fmt.Errorf("mysql: the id of a claim on %q has %d bytes; want at most %d", c.Key, len(c.ID), idBytes))
	}
	var a entered
	e, err := s.step(ctx, "enter the line of", c.Key, a.scan, "enter",
		c.Key, c.ID, c.Span, c.Capacity, c.Weight, c.TTL, c.NoWait, s.node, c.Owner, c.Note)
	if err != nil {
		return driver.Ticket{}, e, err
	}
	if a.touched {
		e.touched = append(e.touched, c.Key)
	}
	t, err := a.ticket(c)
	if err != nil {
		return driver.Ticket{}, e, err
	}
	return t, e.and(s.sweepSometimes(ctx)), nil
}

// entered is the answer to an Enter, as the procedure describes it.
type entered struct {
	seen, touched, granted, mixed                  bool
	free                                           bool // all but the token and the mark is as it was asked for
	answer                                         int
	gone                                           driver.ErrGone
	token, span, capacity, weight, left, ahead     sql.NullInt64
	headToken, headSince, headLeft                 sql.NullInt64
	reason, owner, note, mark, headOwner, headNote []byte
}

func (a *entered) scan(r *cells) error {
	a.seen = true
	if len(r.names) == 2 {
		a.free = true
		return r.scan(&a.token.Int64, &a.mark)
	}
	return r.scan(&a.answer, &a.gone.Broken, &a.reason, &a.token, &a.span, &a.capacity, &a.weight, &a.owner, &a.note,
		&a.granted, &a.left, &a.mark, &a.mixed, &a.ahead, &a.headOwner, &a.headNote, &a.headToken, &a.headSince,
		&a.headLeft, &a.touched)
}

// ticket is the answer to c.
func (a *entered) ticket(c *driver.Claim) (driver.Ticket, error) {
	head := &driver.BusyError{
		Owner: string(a.headOwner), Note: string(a.headNote), Token: a.headToken.Int64,
		Since: time.UnixMicro(a.headSince.Int64), Left: micros(a.headLeft.Int64), Ahead: int(a.ahead.Int64),
	}
	switch {
	case !a.seen:
		return driver.Ticket{}, errShort
	case a.free:
		return driver.Ticket{Claim: *c, Token: a.token.Int64, Granted: true, Left: c.TTL.Truncate(time.Microsecond), Mark: driver.Mark(a.mark)}, nil
	case a.answer == 1:
		return driver.Ticket{}, head
	case a.answer == 2:
		return driver.Ticket{}, driver.ErrKind
	case a.answer == 3:
		a.gone.Reason = string(a.reason)
		return driver.Ticket{}, a.gone
	}
	t := driver.Ticket{Claim: *c, Token: a.token.Int64, Granted: a.granted, Left: micros(a.left.Int64), Mixed: a.mixed}
	t.Owner, t.Note, t.Span = string(a.owner), string(a.note), a.span.Int64
	t.Capacity, t.Weight = a.capacity.Int64, a.weight.Int64
	if a.granted {
		t.Mark = driver.Mark(a.mark)
	} else {
		t.Ahead, t.Head = head.Ahead, head
	}
	return t, nil
}

// leave takes a claim out of its line.
func (s *mysql) leave(ctx context.Context, t *driver.Ticket, x driver.Exit) (effects, error) {
	linger := x.Linger
	if linger > 0 {
		linger = clampMySQL(linger)
	}
	var gone, touched, seen bool
	var why driver.ErrGone
	var reason []byte
	e, err := s.step(ctx, "leave the line of", t.Key, func(r *cells) error {
		if seen = true; len(r.names) == 1 { // it was alone there
			return nil
		}
		return r.scan(&gone, &why.Broken, &reason, &touched)
	}, "leave", t.Key, t.ID, t.Token, clampMySQL(t.TTL), string(x.Mark), linger, s.node)
	switch {
	case err != nil:
		return e, err
	case !seen:
		return e, errShort
	}
	if touched {
		e.touched = append(e.touched, t.Key)
	}
	if gone {
		why.Reason = string(reason)
		return e, why
	}
	return e, nil
}

// end is Break.
func (s *mysql) end(ctx context.Context, key string, token int64, reason string) (effects, error) {
	var id []byte
	var node sql.NullInt64
	var touched, seen bool
	e, err := s.step(ctx, "break a claim of", key, func(r *cells) error {
		seen = true
		return r.scan(&id, &node, &touched)
	}, "break", key, token, reason, s.node)
	switch {
	case err != nil:
		return e, err
	case !seen:
		return e, errShort
	}
	if touched {
		e.touched = append(e.touched, key)
	}
	if id == nil {
		return e, driver.ErrGone{}
	}
	if node.Int64 == s.node {
		e.broken = append(e.broken, broken{key, string(id), driver.ErrGone{Reason: reason, Broken: true}})
	}
	return e, nil
}

// purge removes what has expired from a line, and grants what fits.
func (s *mysql) purge(ctx context.Context, key string) (effects, error) {
	var touched bool
	e, err := s.step(ctx, "purge the line of", key, func(r *cells) error { return r.scan(&touched) }, "purge", key, s.node)
	if touched {
		e.touched = append(e.touched, key)
	}
	return e, err
}

// renewAtOnce is how many leases are renewed in one transaction. Steps on their lines
// wait meanwhile, for some tens of microseconds each.
const renewAtOnce = 100

// renew starts the leases of ts again, a hundred in each round trip. Those that are not
// found alive under their tokens are asked for one by one.
func (s *mysql) renew(ctx context.Context, ts []driver.Ticket) ([]error, effects) {
	errs := make([]error, len(ts))
	order := make([]int, len(ts))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int {
		if c := strings.Compare(ts[i].Key, ts[j].Key); c != 0 {
			return c
		}
		return int(min(max(ts[i].Token-ts[j].Token, -1), 1))
	})
	var e effects
	for chunk := range slices.Chunk(order, renewAtOnce) {
		e = e.and(s.renewChunk(ctx, ts, chunk, errs))
	}
	return errs, e
}

func (s *mysql) renewChunk(ctx context.Context, ts []driver.Ticket, chunk []int, errs []error) (e effects) {
	var list []byte
	for _, i := range chunk {
		t := &ts[i]
		if t.Token < 0 || len(t.Key) > driver.MaxKey || len(t.ID) > idBytes {
			list = fmt.Appendf(list, "%016x%016x%04d%04d", 0, 0, 0, 0) // nobody's
			continue
		}
		list = fmt.Appendf(list, "%016x%016x%04d%04d", t.Token, clampMySQL(t.TTL).Microseconds(), len(t.Key), len(t.ID))
		list = append(append(list, t.Key...), t.ID...)
	}
	var alive string
	err := s.call(ctx, "renew leases", "", func(r *cells) error { return r.scan(&alive) }, "renew", list)
	if err == nil && len(alive) != len(chunk) {
		err = errShort
	}
	for n, i := range chunk {
		switch {
		case err != nil:
			errs[i] = err
		case alive[n] != '1':
			var f effects
			f, errs[i] = s.renewOne(ctx, &ts[i])
			e = e.and(f)
		}
	}
	return e
}

// renewOne renews a claim that has another token than its ticket, or says why it is gone.
func (s *mysql) renewOne(ctx context.Context, t *driver.Ticket) (effects, error) {
	if len(t.Key) > driver.MaxKey || len(t.ID) > idBytes {
		return effects{}, driver.ErrGone{}
	}
	var alive, touched bool
	var gone driver.ErrGone
	var reason []byte
	e, err := s.step(ctx, "renew a lease on", t.Key, func(r *cells) error {
		return r.scan(&alive, &gone.Broken, &reason, &touched)
	}, "renew_one", t.Key, t.ID, clampMySQL(t.TTL), s.node)
	if err != nil {
		return e, err
	}
	if touched {
		e.touched = append(e.touched, t.Key)
	}
	if !alive {
		gone.Reason = string(reason)
		return e, gone
	}
	return e, nil
}

// One Enter in so many sweeps so many lines: two lines for each that an Enter can have
// made, so the sweep keeps up.
const sweepEachMySQL, sweepLinesMySQL = 64, 128

// sweepSometimes forgets some idle lines. That it fails is of no matter: the next one
// does it.
func (s *mysql) sweepSometimes(ctx context.Context) effects {
	// The first phase is the node's, so that processes that enter once and end, as
	// commands do, sweep as often as others.
	if (s.enters.Add(1)+uint32(s.node))%sweepEachMySQL != 0 {
		return effects{}
	}
	_ = s.call(ctx, "sweep", "", func(*cells) error { return nil }, "sweep", int64(sweepLinesMySQL), memory, s.node)
	return effects{}
}

func clampMySQL(d time.Duration) time.Duration {
	return min(max(d, mysqlInfo.MinTTL), mysqlInfo.MaxTTL)
}
