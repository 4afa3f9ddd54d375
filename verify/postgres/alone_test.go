package postgres_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/sqllock"
)

// where says in which tables the claims on a key are.
func where(t testing.TB, url, key string) (alone, others int) {
	t.Helper()
	conn, err := pgx.Connect(soon(t), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(soon(t))
	if err := conn.QueryRow(soon(t), `SELECT (SELECT count(*) FROM fencelock_line WHERE key = $1 AND id <> ''),
		(SELECT count(*) FROM fencelock_claim WHERE key = $1)`, []byte(key)).Scan(&alone, &others); err != nil {
		t.Fatal(err)
	}
	return alone, others
}

// TestAFreeLockIsOneRow has claims of every kind enter lines that nobody is in, the first of
// each included. A second one moves the first, as it is.
func TestAFreeLockIsOneRow(t *testing.T) {
	t.Parallel()
	url := newURL(t)
	b := backend(t, openURL(t, url))
	reader, permit := claim("reader"), claim("permit")
	reader.Weight = 1
	permit.Capacity, permit.Weight = 5, 2
	for _, c := range []driver.Claim{claim("lock"), reader, permit} {
		c.Span = 64
		for turn := range 3 {
			c.ID = fmt.Sprint(c.Key, turn)
			holder := hold(t, b, c)
			if alone, others := where(t, url, c.Key); alone != 1 || others != 0 {
				t.Errorf("turn %d of %s: %d claims are in the row of the line and %d elsewhere; want one there", turn, c.Key, alone, others)
			}
			before, err := b.Line(soon(t), c.Key)
			if err != nil {
				t.Fatal(err)
			}
			if again := enter(t, b, c); again.Token != holder.Token || again.Span != 64 || !again.Granted {
				t.Errorf("a repeated Enter on %s got %+v after %+v", c.Key, again, holder)
			}
			if alone, others := where(t, url, c.Key); alone != 0 || others != 1 {
				t.Errorf("a repeated Enter on %s left %d claims in the row of the line and %d elsewhere", c.Key, alone, others)
			}
			after, err := b.Line(soon(t), c.Key)
			if err != nil {
				t.Fatal(err)
			}
			was, is := before.Claims[0], after.Claims[0]
			was.Left, is.Left = 0, 0
			if len(after.Claims) != 1 || was != is || was.ID == "" || was.Token != holder.Token || before.Last != after.Last {
				t.Errorf("%s was shown as %+v of a line up to %d, and moved as %+v up to %d", c.Key, was, before.Last, is, after.Last)
			}
			leave(t, b, holder)
		}
	}
	empty(t, b)
	sane(t, openURL(t, url))
}

// TestStepsBesideOneThatMovesTheirClaim has a try move a claim out of the row of its line and
// commit late. The holder's own steps wait for that, and find the claim where it is then.
func TestStepsBesideOneThatMovesTheirClaim(t *testing.T) {
	t.Parallel()
	for name, param := range isolations {
		for step, do := range map[string]func(t *testing.T, b *sqllock.Backend, holder driver.Ticket) error{
			"Renew": func(t *testing.T, b *sqllock.Backend, holder driver.Ticket) error {
				return b.Renew(soon(t), []driver.Ticket{holder})[0]
			},
			"Leave": func(t *testing.T, b *sqllock.Backend, holder driver.Ticket) error {
				return b.Leave(soon(t), holder, driver.Exit{})
			},
			"Enter": func(t *testing.T, b *sqllock.Backend, holder driver.Ticket) error {
				again, err := b.Enter(soon(t), holder.Claim)
				if err == nil && again.Token != holder.Token {
					return fmt.Errorf("it got token %d after %d", again.Token, holder.Token)
				}
				return err
			},
			"Break": func(t *testing.T, b *sqllock.Backend, holder driver.Ticket) error {
				return b.Break(soon(t), holder.Key, holder.Token, "enough")
			},
		} {
			t.Run(name+"/"+step, func(t *testing.T) {
				t.Parallel()
				url := newURL(t, param)
				b := backend(t, openURL(t, url))
				holder := hold(t, b, claim("k"))
				x := begin(t, url)
				x.do("SELECT * FROM fencelock_enter('k', 'somebody', 1048576, 1048576, 60000000, true, 1, 7, '', '')")
				got := make(chan error)
				go func() { got <- do(t, b, holder) }()
				blocked(t, url)
				x.end()
				if err := <-got; err != nil {
					t.Errorf("%s beside a try answered %v", step, err)
				}
				if step == "Renew" || step == "Enter" {
					leave(t, b, holder)
				}
				empty(t, b)
				sane(t, openURL(t, url))
			})
		}
	}
}

// TestWhatWaitsForTheDisk asks which steps let their transaction commit without waiting for
// the disk: those that grant nobody anything and promise nothing.
func TestWhatWaitsForTheDisk(t *testing.T) {
	t.Parallel()
	url := newURL(t)
	b := backend(t, openURL(t, url))
	leave(t, b, hold(t, b, claim("k")))
	for _, tt := range []struct {
		what string
		make func() driver.Ticket
		step string // $1 is the id
		lazy bool
	}{
		{"a grant", func() driver.Ticket { return driver.Ticket{Claim: claim("k")} }, "fencelock_enter('k', $1, 1048576, 1048576, 60000000, true, 1, 7, '', '')", false},
		{"a try that is refused", func() driver.Ticket { return hold(t, b, claim("k")) }, "fencelock_enter('k', $1::bytea || 'x', 1048576, 1048576, 60000000, true, 1, 7, '', '')", true},
		{"a place in line", func() driver.Ticket { return hold(t, b, claim("k")) }, "fencelock_enter('k', $1::bytea || 'x', 1048576, 1048576, 60000000, false, 1, 7, '', '')", false},
		{"a Leave from the row of the line", func() driver.Ticket { return hold(t, b, claim("k")) }, "fencelock_leave('k', $1, '', 0, 0, 7)", true},
		{"a Leave of the only claim", func() driver.Ticket {
			holder := hold(t, b, claim("k"))
			move(t, b, "k")
			return holder
		}, "fencelock_leave('k', $1, '', 0, 0, 7)", true},
		{"a Leave that lets somebody in", func() driver.Ticket {
			holder := hold(t, b, claim("k"))
			wait(t, b, claim("k"))
			return holder
		}, "fencelock_leave('k', $1, '', 0, 0, 7)", false},
		{"a Leave with a mark", func() driver.Ticket { return hold(t, b, claim("k")) }, "fencelock_leave('k', $1, 'm', 0, 0, 7)", false},
		{"a Leave that lingers", func() driver.Ticket { return hold(t, b, claim("k")) }, "fencelock_leave('k', $1, '', 60000000, 0, 7)", false},
		{"a Leave that lays to rest", func() driver.Ticket { return hold(t, b, claim("k")) }, "fencelock_leave('k', $1, '', 0, 60000000, 7)", false},
	} {
		ticket := tt.make()
		x := begin(t, url)
		x.do("SELECT * FROM "+tt.step, []byte(ticket.ID))
		var setting string
		if err := x.conn.QueryRow(soon(t), "SHOW synchronous_commit").Scan(&setting); err != nil || (setting == "off") != tt.lazy {
			t.Errorf("%s: synchronous_commit is %q, %v", tt.what, setting, err)
		}
		x.do("ROLLBACK")
		do(t, url, "DELETE FROM fencelock_claim")
		do(t, url, "DELETE FROM fencelock_line")
	}
}

// TestARestOutlivesItsLine has an id rest for longer than an idle line is remembered.
func TestARestOutlivesItsLine(t *testing.T) {
	t.Parallel()
	url := newURL(t)
	db := openURL(t, url)
	b := backend(t, db)
	c := ttl(claim("k"), 100*time.Hour)
	if err := b.Leave(soon(t), driver.Ticket{Claim: c}, driver.Exit{}); !driver.Gone(err) {
		t.Fatalf("Leave of nobody answered %v", err)
	}
	for _, how := range []string{"UPDATE fencelock_line SET last = 1", "DELETE FROM fencelock_line WHERE key = 'k'"} {
		do(t, url, how)
		do(t, url, "SELECT * FROM fencelock_sweep(1000, 7)")
		do(t, url, "SELECT * FROM fencelock_sweep(1000, 7)")
		leave(t, b, hold(t, b, claim("k"))) // the row of the line is there, if it was not
		if _, err := b.Enter(soon(t), c); !driver.Gone(err) {
			t.Errorf("after %s an id that rests was answered with %v", how, err)
		}
	}
	empty(t, b)
	sane(t, db)
}

// TestSpansDoNotOverlap draws tokens in each of the ways that there are, with spans that the
// clock needs longer to overtake than the test.
func TestSpansDoNotOverlap(t *testing.T) {
	t.Parallel()
	b := backend(t, openURL(t, newURL(t)))
	var last int64
	next := func(what string, ticket driver.Ticket) driver.Ticket {
		t.Helper()
		if ticket.Token <= last {
			t.Errorf("%s got token %d, and those up to %d are others'", what, ticket.Token, last)
		}
		last = ticket.Token + ticket.Span - 1
		return ticket
	}
	c := claim("k")
	c.Span = driver.MaxSpan
	another := func() driver.Claim {
		c.ID += "x"
		return c
	}
	first := next("the first of a line", hold(t, b, another()))
	second := next("who waits", wait(t, b, another()))
	leave(t, b, first)
	second = granted(t, b, second)
	third := next("who waits behind", wait(t, b, another()))
	leave(t, b, second)
	leave(t, b, granted(t, b, third))
	for range 3 {
		leave(t, b, next("who finds nobody", hold(t, b, another())))
	}
	empty(t, b)
}
