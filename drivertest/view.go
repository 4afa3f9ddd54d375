package drivertest

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/ballot"
)

// view is the store as one process has it.
type view struct {
	driver.Backend
	w *world
}

// other is another view, which looks at what v has done.
func (v *view) other() *view {
	if v == v.w.b {
		return v.w.a
	}
	return v.w.b
}

func (v *view) try(c driver.Claim) (*inLine, error) { return v.send(v.w.ctx, c, v.Enter) }
func (v *view) reenter(c driver.Claim) (*inLine, error) {
	return v.send(v.w.ctx, c, v.Backend.(ballot.Member).Reenter)
}

// send sends c by a method of the backend. The claim is cleaned up whatever the answer is.
func (v *view) send(
	ctx context.Context, c driver.Claim, method func(context.Context, driver.Claim) (driver.Ticket, error),
) (*inLine, error) {
	x := v.with(driver.Ticket{Claim: c})
	x.sent = time.Now()
	t, err := method(ctx, c)
	x.answered = time.Now()
	if err == nil {
		x.Ticket = t
	}
	v.w.mu.Lock()
	defer v.w.mu.Unlock()
	v.w.placed = append(v.w.placed, *x)
	return x, err
}

// with is a ticket as if v had brought its claim into line.
func (v *view) with(t driver.Ticket) *inLine { return &inLine{Ticket: t, at: v} }

// enter joins the line, and holds the ticket to what every ticket must say.
func (v *view) enter(c driver.Claim) *inLine {
	x, err := v.try(c)
	v.w.must("Enter", err)
	v.w.sound(c, x.Ticket)
	v.w.wrongIf(x.Left <= 0, "a lease of %v has %v left", x.TTL, x.Left)
	return x
}

func (v *view) holds(c driver.Claim) *inLine { return v.joins(c, true) }
func (v *view) waits(c driver.Claim) *inLine { return v.joins(c, false) }

// joins joins the line and must be granted at once, or must not.
func (v *view) joins(c driver.Claim, granted bool) *inLine {
	x := v.enter(c)
	if x.Granted != granted {
		v.w.t.Fatalf("Enter on %q with weight %d of %d answered granted %v, %d ahead, head %v; want granted %v",
			c.Key, c.Weight, c.Capacity, x.Granted, x.Ahead, x.Head, granted)
	}
	return x
}

// line has views join a line in turn.
func (w *world) line(n int, join func(v *view) *inLine) []*inLine {
	xs := make([]*inLine, n)
	for i := range xs {
		xs[i] = join(w.views()[i%2])
	}
	return xs
}

// waitsBefore joins a line, and must not be granted before a lease in it ends.
func (v *view) waitsBefore(end time.Time, c driver.Claim) *inLine {
	x := v.enter(c)
	if x.Granted {
		v.w.inTime("an Enter", x.answered, end)
		v.w.t.Fatalf("a claim on %q was granted while the lease of one before it still ran", c.Key)
	}
	return x
}

// refused sends an Enter that does not wait, and must be refused.
func (v *view) refused(c driver.Claim) *driver.BusyError {
	x, err := v.try(noWait(c))
	var busy *driver.BusyError
	if !errors.As(err, &busy) {
		v.w.t.Fatalf("Enter on %q with NoWait answered granted %v, error %v; want a *BusyError", c.Key, x.Granted, err)
	}
	return busy
}

// keptOut sends a delayed Enter, which must find a tombstone.
func (v *view) keptOut(c driver.Claim) {
	_, err := v.try(c)
	v.w.gone("the delayed Enter", err)
}

// entomb leaves a tombstone for a claim that has not arrived.
func (v *view) entomb(c driver.Claim) {
	err := v.with(driver.Ticket{Claim: c}).leave(driver.Exit{Tombstone: true})
	v.w.gone("Leave of a claim that has not arrived", err)
}

// renew renews claims in one call.
func (v *view) renew(xs ...*inLine) []error {
	ts := make([]driver.Ticket, len(xs))
	for i, x := range xs {
		ts[i] = x.Ticket
	}
	sent := time.Now()
	errs := v.Renew(v.w.ctx, ts)
	answered := time.Now()
	if len(errs) != len(ts) {
		v.w.t.Fatalf("Renew of %d tickets answered %d errors", len(ts), len(errs))
	}
	for i, x := range xs {
		if errs[i] == nil {
			x.sent, x.answered, x.Left = sent, answered, x.TTL
		}
	}
	return errs
}

// lists must have Lines yield each key as often as want says.
func (w *world) lists(prefix string, want map[string]int) {
	got := map[string]int{}
	for l, err := range w.b.Lines(w.ctx, prefix) {
		w.must("Lines", err)
		got[l.Key]++
	}
	w.wrongIf(!maps.Equal(got, want), "Lines with prefix %q yields %v; want %v", prefix, got, want)
}

// line looks at one line. A line that Lines does not yield is empty of claims.
func (v *view) line(key string) driver.Line {
	for l, err := range v.Lines(v.w.ctx, key) {
		if err != nil || l.Key == key {
			v.w.wrongIf(err != nil, "Lines with prefix %q: %v", key, err)
			return l
		}
	}
	return driver.Line{Key: key}
}

func (v *view) empty(key string) { v.counts(key, 0) }

// counts must find n claims in the line of key.
func (v *view) counts(key string, n int) {
	cs := v.line(key).Claims
	v.w.wrongIf(len(cs) != n, "%d claims are in the line of %q; want %d: %+v", len(cs), key, n, cs)
}

// allAnswer sends every call: each must answer want, and soon.
func (v *view) allAnswer(ctx context.Context, want error, held, spare *inLine) {
	w := v.w
	w.soon("all calls", func() {
		_, err := v.send(ctx, w.claim(w.key()), v.Enter)
		w.answered("Enter", err, want)
		_, err = v.Await(ctx, held.Ticket)
		w.answered("Await", err, want)
		errs := v.Renew(ctx, []driver.Ticket{held.Ticket, held.Ticket})
		same(w, "the errors of a Renew of 2 tickets", len(errs), 2)
		for _, err := range errs {
			w.answered("Renew", err, want)
		}
		w.answered("Break", v.Break(ctx, spare.Key, spare.Token, driver.Break{Reason: "late"}), want)
		w.answered("Leave", v.Leave(ctx, spare.Ticket, driver.Exit{}), want)
		var lines error
		for _, err := range v.Lines(ctx, w.prefix) {
			lines = errors.Join(lines, err)
		}
		w.answered("Lines", lines, want)
		_, err = v.Line(ctx, held.Key)
		w.answered("Line", err, want)
	})
}
