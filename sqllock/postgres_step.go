package sqllock

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// result is what the rows say that a step answers. Which of its parts are set, the
// step decides.
type result struct {
	effects
	ticket driver.Ticket
	ok     bool // there is a ticket
	head   *driver.BusyError
	busy   bool
	kind   bool
	left   bool
	gone   driver.ErrGone
	refuse error // why a ballot is not granted
}

// step calls a function of the schema. If it was rolled back because of somebody else,
// it is called again.
func (p *postgres) step(ctx context.Context, what, key, query string, args ...any) (result, error) {
	var r result
	err := p.retry(ctx, func() error {
		r = result{}
		return p.ask(ctx, r.add, query, args...)
	})
	if err == nil {
		return r, nil
	}
	return r, p.fail(named(what, key), err)
}

// row is one row of what a step answers, as its driver delivers it. Half of most rows is
// null, and scanning into numbers would have each of the others written out and read.
type row struct {
	cells [columns]sqldriver.Value
	err   error
}

// The columns of a row: see fencelock_answer.
const (
	colWhat = iota
	colKey
	colID
	colToken
	colSpan
	colWeight
	colCapacity
	colGranted
	colRemains
	colAhead
	colSince
	colMixed
	colMark
	colOwner
	colNote
	columns
)

func (r *row) text(column int) string  { return read(r, column, asText) }
func (r *row) number(column int) int64 { return read(r, column, asNumber) }
func (r *row) flag(column int) bool    { return read(r, column, asFlag) }

func read[T any](r *row, column int, as func(sqldriver.Value) (T, error)) T {
	x, err := as(r.cells[column])
	if err != nil {
		r.err = fmt.Errorf("postgres: column %d of an answer: %w", column, err)
	}
	return x
}

// add takes one row; the schema says what they mean.
func (r *result) add(x *row) error {
	left := time.Duration(x.number(colRemains)) * time.Microsecond
	switch what := x.text(colWhat); what {
	case "ticket":
		r.ok = true
		r.ticket = driver.Ticket{
			Claim: driver.Claim{
				Owner: x.text(colOwner), Note: x.text(colNote),
				Capacity: x.number(colCapacity), Weight: x.number(colWeight), Span: x.number(colSpan),
			},
			Token: x.number(colToken), Granted: x.flag(colGranted), Left: left, Ahead: int(x.number(colAhead)), Mixed: x.flag(colMixed),
		}
		if r.ticket.Granted {
			r.ticket.Mark = driver.Mark(x.text(colMark))
		}
	case "head":
		r.head = &driver.BusyError{Owner: x.text(colOwner), Note: x.text(colNote), Token: x.number(colToken),
			Since: time.UnixMicro(x.number(colSince)), Left: left}
	case "busy":
		r.busy = true
		r.head.Ahead = int(x.number(colAhead))
	case "kind":
		r.kind = true
	case "gone":
		r.gone = driver.ErrGone{Broken: x.flag(colGranted), Reason: x.text(colNote)}
	case "ballot":
		r.refuse = driver.ErrBallot{Last: x.number(colToken)}
	case "wait":
		r.refuse = &driver.QuarantineError{Left: left}
	case "other", "careless", "damaged":
		r.refuse = noMember(what, x.text(colNote))
	case "left":
		r.left = true
	case "grant":
		r.granted = append(r.granted, grant{x.text(colKey), x.text(colID), driver.Mark(x.text(colMark)), left, x.flag(colMixed)})
	case "touched":
		r.touched = append(r.touched, x.text(colKey))
	case "broken":
		r.broken = append(r.broken, broken{x.text(colKey), x.text(colID), driver.ErrGone{Broken: true, Reason: x.text(colNote)}})
	default:
		return permanent(fmt.Errorf("postgres: the functions of fencelock answer %.40q, which this program does not know: run the DDL of this version again", what))
	}
	return x.err
}

// enter joins a line, or finds the claim that is there.
func (p *postgres) enter(ctx context.Context, c *driver.Claim) (driver.Ticket, effects, error) {
	r, err := p.step(ctx, "enter the line of", c.Key, p.q["enter"], p.entry(c)...)
	return p.entered(ctx, c, &r, err)
}

// entry is what all calls of fencelock_enter begin with.
func (p *postgres) entry(c *driver.Claim) []any {
	return []any{[]byte(c.Key), []byte(c.ID), c.Capacity, c.Weight, c.TTL.Microseconds(), c.NoWait, c.Span, p.node, []byte(c.Owner), []byte(c.Note)}
}

// entered reads what fencelock_enter has answered.
func (p *postgres) entered(ctx context.Context, c *driver.Claim, r *result, err error) (driver.Ticket, effects, error) {
	none := driver.Ticket{}
	switch {
	case err != nil:
		return none, effects{}, err
	case r.refuse != nil:
		return none, r.effects, r.refuse
	case r.kind:
		return none, r.effects, driver.ErrKind
	case r.busy:
		return none, r.effects, r.head
	case !r.ok:
		return none, r.effects, r.gone
	}
	// What is in line decides; how it was asked for is the caller's.
	t := r.ticket
	t.Key, t.ID, t.TTL, t.NoWait = c.Key, c.ID, c.TTL, c.NoWait
	if r.head != nil {
		r.head.Ahead = t.Ahead
		t.Head = r.head
	}
	return t, r.effects.and(p.sweepSometimes(ctx)), nil
}

// leave takes a claim out of its line.
func (p *postgres) leave(ctx context.Context, t *driver.Ticket, e driver.Exit) (effects, error) {
	var linger, rest int64
	if e.Linger > 0 {
		linger = postgresTTL(e.Linger)
	}
	if t.Token == 0 {
		rest = postgresTTL(t.TTL)
	}
	r, err := p.step(ctx, "leave the line of", t.Key, p.q["leave"], []byte(t.Key), []byte(t.ID), []byte(e.Mark), linger, rest, p.node)
	if err == nil && !r.left {
		err = r.gone
	}
	return r.effects, err
}

// end is Break.
func (p *postgres) end(ctx context.Context, key string, token int64, reason string) (effects, error) {
	r, err := p.step(ctx, "break a claim of", key, p.q["break"], []byte(key), token, []byte(reason), p.node)
	if err == nil && !r.left {
		err = r.gone
	}
	return r.effects, err
}

func (p *postgres) purge(ctx context.Context, key string) (effects, error) {
	r, err := p.step(ctx, "purge the line of", key, p.q["tidy"], []byte(key), p.node)
	return r.effects, err
}

// sweepSometimes forgets some idle lines. That it fails is of no matter: the next one
// does it.
func (p *postgres) sweepSometimes(ctx context.Context) effects {
	// The first phase is the node's, so that processes that enter once and end, as
	// commands do, sweep as often as others.
	if (p.enters.Add(1)+uint32(p.node))%sweepEach != 0 {
		return effects{}
	}
	var r result
	if err := p.ask(ctx, r.add, p.q["sweep"], int64(sweepLines), p.node); err != nil {
		return effects{}
	}
	return r.effects
}

// renew starts the leases of ts again by one statement: all of it, or nothing.
func (p *postgres) renew(ctx context.Context, ts []driver.Ticket) ([]error, effects) {
	keys, tokens, ids, ttls := newList(ts), newList(ts), newList(ts), newList(ts)
	for i := range ts {
		t := &ts[i]
		keys.add(hex.EncodeToString([]byte(t.Key)))
		tokens.add(strconv.FormatInt(t.Token, 10))
		ids.add(hex.EncodeToString([]byte(t.ID)))
		ttls.add(strconv.FormatInt(postgresTTL(t.TTL), 10))
	}
	errs := make([]error, len(ts))
	answers := 0
	err := p.retry(ctx, func() error {
		answers = 0
		return p.each(ctx, func(rows *sql.Rows) error {
			var place int64
			var alive bool
			var gone driver.ErrGone
			var reason []byte
			if err := rows.Scan(&place, &alive, &gone.Broken, &reason); err != nil {
				return err
			}
			if place < 1 || place > int64(len(errs)) {
				return fmt.Errorf("an answer for lease %d of %d", place, len(errs))
			}
			answers++
			gone.Reason = string(reason)
			errs[place-1] = nil
			if !alive {
				errs[place-1] = gone
			}
			return nil
		}, p.q["renew"], keys.text(), tokens.text(), ids.text(), ttls.text())
	})
	if err == nil && answers != len(ts) {
		err = fmt.Errorf("%d answers for %d leases", answers, len(ts))
	}
	if err = p.fail("renew leases", err); err != nil {
		errs = slices.Repeat([]error{err}, len(ts))
	}
	return errs, effects{}
}

// list is an array of PostgreSQL as text. Its elements need no quotes.
type list struct{ strings.Builder }

func newList(ts []driver.Ticket) *list {
	var l list
	l.Grow(40 * len(ts))
	return &l
}

func (l *list) add(element string) {
	l.WriteByte(",{"[btoi(l.Len() == 0)])
	if element == "" {
		element = `""`
	}
	l.WriteString(element)
}

func (l *list) text() string { return l.String() + "}" }

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// postgresTTL is a lease in µs, within what Info says.
func postgresTTL(d time.Duration) int64 {
	return min(max(d, postgresInfo.MinTTL), postgresInfo.MaxTTL).Microseconds()
}
