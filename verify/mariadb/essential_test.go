package mariadb_test

import (
	"errors"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/sqllock"
)

// essentials plays what settings of a session could spoil: the clock, leases that end, a
// hand-over, a mark, a rest, and text without bytes in it.
func essentials(t *testing.T, one, other driver.Backend) {
	t.Helper()
	a, b := one.(*sqllock.Backend), other.(*sqllock.Backend)
	began := time.Now()
	c := ttl(claim("k"), 500*time.Millisecond)
	c.Owner, c.Note = "", ""
	short := hold(t, a, c)
	// A server in the same room has the same time, in every zone.
	if at := time.UnixMicro(short.Token); at.Before(began.Add(-time.Minute)) || at.After(began.Add(time.Minute)) {
		t.Errorf("the token %d is of %v; want one of now", short.Token, at)
	}
	if short.Owner != "" || short.Note != "" {
		t.Errorf("the ticket says %q and %q; want no text", short.Owner, short.Note)
	}
	next := wait(t, b, claim("k"))
	next = granted(t, b, next)
	if took := time.Since(began); took < 500*time.Millisecond || took > 5*time.Second {
		t.Errorf("the next in line was granted after %v; want the end of the lease of 500ms", took)
	}
	if err := a.Renew(soon(t), []driver.Ticket{short})[0]; !driver.Gone(err) {
		t.Errorf("Renew after the lease answered %v; want ErrGone", err)
	}
	if next.Token <= short.Token {
		t.Errorf("token %d after %d", next.Token, short.Token)
	}
	if err := b.Renew(soon(t), []driver.Ticket{next})[0]; err != nil {
		t.Errorf("Renew: %v", err)
	}
	var busy *driver.BusyError
	if _, err := a.Enter(soon(t), noWait(claim("k"))); !errors.As(err, &busy) || busy.Token != next.Token || busy.Left <= 0 || busy.Left > time.Minute {
		t.Errorf("a try answered %v; want who holds it", err)
	}
	if err := b.Leave(soon(t), next, driver.Exit{Mark: "done"}); err != nil {
		t.Error(err)
	}
	marked := hold(t, a, claim("k"))
	if marked.Mark != "done" {
		t.Errorf("the mark is %q; want done", marked.Mark)
	}
	if err := b.Break(soon(t), "k", marked.Token, ""); err != nil {
		t.Error(err)
	}
	var gone driver.ErrGone
	if _, err := a.Enter(soon(t), marked.Claim); !errors.As(err, &gone) || !gone.Broken || gone.Reason != "" {
		t.Errorf("Enter of a broken claim answered %v; want that", err)
	}
	empty(t, b)
}
