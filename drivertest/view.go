package drivertest

import (
	"context"
	"errors"
	"time"

	"github.com/fencelock/fencelock/driver"
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

// try sends Enter. The claim is cleaned up whatever the answer is.
func (v *view) try(c driver.Claim) (*inLine, error) { return v.tryIn(v.w.ctx, c) }

func (v *view) tryIn(ctx context.Context, c driver.Claim) (*inLine, error) {
	return v.place(c, func() (driver.Ticket, error) { return v.Enter(ctx, c) })
}

// reenter sends Reenter.
func (v *view) reenter(c driver.Claim) (*inLine, error) {
	return v.place(c, func() (driver.Ticket, error) { return v.Backend.(driver.Member).Reenter(v.w.ctx, c) })
}

func (v *view) place(c driver.Claim, enter func() (driver.Ticket, error)) (*inLine, error) {
	x := v.with(driver.Ticket{Claim: c})
	var t driver.Ticket
	var err error
	x.interval = clock(func() { t, err = enter() })
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
	v.w.t.Helper()
	x, err := v.try(c)
	if err != nil {
		v.w.t.Fatalf("Enter on %q: %v", c.Key, err)
	}
	v.w.sound(c, x.Ticket)
	v.w.wrongIf(x.Left <= 0, "a lease of %v has %v left", x.TTL, x.Left)
	return x
}

// holds joins the line and must be granted at once.
func (v *view) holds(c driver.Claim) *inLine {
	v.w.t.Helper()
	x := v.enter(c)
	if !x.Granted {
		v.w.t.Fatalf("Enter on %q was not granted, %d ahead, head %v; want a grant: nothing stands in its way",
			c.Key, x.Ahead, x.Head)
	}
	return x
}

// waits joins the line and must not be granted.
func (v *view) waits(c driver.Claim) *inLine {
	v.w.t.Helper()
	x := v.enter(c)
	if x.Granted {
		v.w.t.Fatalf("Enter on %q with weight %d of %d was granted; want it to wait for those before it",
			c.Key, c.Weight, c.Capacity)
	}
	return x
}

// waitsBefore joins a line in which a lease ends at the given time, and must not be
// granted before.
func (v *view) waitsBefore(end time.Time, c driver.Claim) *inLine {
	v.w.t.Helper()
	x := v.enter(c)
	if x.Granted {
		v.w.inTime("an Enter", x.answered, end)
		v.w.t.Fatalf("a claim on %q was granted while the lease of one before it still ran", c.Key)
	}
	return x
}

// refused sends an Enter that does not wait, and must be refused.
func (v *view) refused(c driver.Claim) *driver.BusyError {
	v.w.t.Helper()
	x, err := v.try(noWait(c))
	var busy *driver.BusyError
	if !errors.As(err, &busy) {
		v.w.t.Fatalf("Enter on %q with NoWait answered granted %v, error %v; want a *BusyError", c.Key, x.Granted, err)
	}
	return busy
}

// keptOut sends an Enter that must find a tombstone.
func (v *view) keptOut(what string, c driver.Claim) {
	v.w.t.Helper()
	_, err := v.try(c)
	v.w.gone(what, err)
}

// entomb leaves a tombstone for a claim that has not arrived.
func (v *view) entomb(c driver.Claim) {
	v.w.t.Helper()
	v.w.gone("Leave of a claim that has not arrived", v.with(driver.Ticket{Claim: c}).leave())
}

// renew renews claims in one call.
func (v *view) renew(xs ...*inLine) []error {
	v.w.t.Helper()
	ts := make([]driver.Ticket, len(xs))
	for i, x := range xs {
		ts[i] = x.Ticket
	}
	var errs []error
	now := clock(func() { errs = v.Renew(v.w.ctx, ts) })
	if len(errs) != len(ts) {
		v.w.t.Fatalf("Renew of %d tickets answered %d errors", len(ts), len(errs))
	}
	for i, x := range xs {
		if errs[i] == nil {
			x.interval, x.Left = now, x.TTL
		}
	}
	return errs
}

// breaks ends the claim of key whose span holds token.
func (v *view) breaks(key string, token int64, reason string) {
	v.w.t.Helper()
	v.w.must("Break", v.Break(v.w.ctx, key, token, reason))
}

// lines lists what begins with prefix.
func (v *view) lines(prefix string) (ls []driver.Line) {
	v.w.t.Helper()
	for l, err := range v.Lines(v.w.ctx, prefix) {
		if err != nil {
			v.w.t.Errorf("Lines with prefix %q: %v", prefix, err)
			break
		}
		ls = append(ls, l)
	}
	return ls
}

// listed is how often Lines yields each key.
func (v *view) listed(prefix string) map[string]int {
	v.w.t.Helper()
	n := map[string]int{}
	for _, l := range v.lines(prefix) {
		n[l.Key]++
	}
	return n
}

// line looks at one line. A line that Lines does not yield is empty of claims.
func (v *view) line(key string) driver.Line {
	v.w.t.Helper()
	for l, err := range v.Lines(v.w.ctx, key) {
		if err != nil || l.Key == key {
			v.w.wrongIf(err != nil, "Lines with prefix %q: %v", key, err)
			return l
		}
	}
	return driver.Line{Key: key}
}

// counts must find n claims in the line of key.
func (v *view) counts(key string, n int) {
	v.w.t.Helper()
	if cs := v.line(key).Claims; len(cs) != n {
		v.w.t.Errorf("%d claims are in the line of %q; want %d: %+v", len(cs), key, n, cs)
	}
}

// empty must find nobody in the line of key.
func (v *view) empty(key string) {
	v.w.t.Helper()
	v.counts(key, 0)
}

// crashes ends v as kill -9 would, if the backend has told how. Otherwise it is
// enough that nobody renews.
func (v *view) crashes() {
	if v.w.conf.crash != nil {
		v.w.conf.crash(v.Backend)
	}
}

// allAnswer sends every call: each must answer want, and soon. What it asks of spare
// may end that claim.
func (v *view) allAnswer(ctx context.Context, want error, held, spare *inLine) {
	w := v.w
	w.t.Helper()
	answer := func(what string, err error) {
		w.t.Helper()
		w.wrongIf(!errors.Is(err, want), "%s answered %v; want %v", what, err, want)
	}
	w.soon("all calls", func() {
		_, err := v.tryIn(ctx, w.claim(w.key()))
		answer("Enter", err)
		_, err = v.Await(ctx, held.Ticket)
		answer("Await", err)
		errs := v.Renew(ctx, []driver.Ticket{held.Ticket, held.Ticket})
		if len(errs) != 2 {
			w.t.Fatalf("Renew of 2 tickets answered %d errors", len(errs))
		}
		answer("Renew", errs[0])
		answer("Renew", errs[1])
		answer("Break", v.Break(ctx, spare.Key, spare.Token, "late"))
		answer("Leave", v.Leave(ctx, spare.Ticket, driver.Exit{}))
		var lines error
		for _, err := range v.Lines(ctx, w.prefix) {
			lines = errors.Join(lines, err)
		}
		answer("Lines", lines)
		if r, ok := v.Backend.(driver.LineReader); ok {
			_, err := r.Line(ctx, held.Key)
			answer("Line", err)
		}
	})
}
