package sql_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/sqllock"
)

// On a server a claim that is alone is kept by the row of its line, until somebody else opens a
// step there. These are the moments at which the one becomes the other.

// keeps reports whether the row of key's line keeps a claim, and no other row has one.
func (s *store) keeps(t testing.TB, key string) bool {
	t.Helper()
	return ask[bool](t, s, "SELECT {alone} AND NOT EXISTS (SELECT 1 FROM fencelock_claim c WHERE c.{key} = l.{key}) "+
		"FROM fencelock_line l WHERE {key} = ?", []byte(key))
}

// seen is what people see of a line, but for the time that is left.
func seen(t testing.TB, b *sqllock.Backend, key string) driver.Line {
	t.Helper()
	l, err := b.Line(soon(t), key)
	must(t, err)
	for i := range l.Claims {
		if left := l.Claims[i].Left; left < 40*time.Second || left > time.Minute {
			t.Errorf("%v are left of a lease of a minute", left)
		}
		l.Claims[i].Left = 0
	}
	return l
}

// TestALoneClaimIsTheSameInBothPlaces has claims of every kind enter lines that nobody is in.
// It compares what is seen of a claim while its line keeps it and afterwards, and what its
// holder is told.
func TestALoneClaimIsTheSameInBothPlaces(t *testing.T) {
	each(t, onServers, func(t *testing.T, s *store) {
		b, other := s.polling(t), s.polling(t)
		for _, mark := range []driver.Mark{"", "done"} {
			first := hold(t, b, claim("k"))
			must(t, b.Leave(soon(t), first, driver.Exit{Mark: mark}))
			// Whose mark it is knows that its Leave was done.
			if err := b.Leave(soon(t), first, driver.Exit{Mark: mark}); driver.Gone(err) != (mark == "") {
				t.Errorf("Leave with the mark %q was answered %v when it was repeated", mark, err)
			}
			permits := driver.Claim{Key: "k", ID: "permits", Capacity: 5, Weight: 3, TTL: time.Minute, Span: 64}
			for _, c := range []driver.Claim{claim("k"), reader("k"), permits} {
				ticket := hold(t, b, c)
				if !s.keeps(t, "k") {
					t.Fatalf("a claim on a line with the mark %q is not kept by its row", mark)
				}
				before := seen(t, other, "k")
				if len(before.Claims) != 1 || before.Claims[0].Token != ticket.Token ||
					before.Claims[0].Owner != c.Owner ||
					before.Claims[0].Note != c.Note || before.Claims[0].Span != c.Span || before.Mark != mark {
					t.Errorf("%+v is seen of %+v", before, ticket)
				}
				if awaited, err := other.Await(soon(t), ticket); err != nil || !awaited.Granted ||
					awaited.Mark != mark {
					t.Errorf("Await of a claim that its line keeps answered %+v, %v", awaited, err)
				}
				again := hold(t, other, c) // the answer was lost
				if s.keeps(t, "k") {
					t.Error("a repeated Enter leaves the claim where it is")
				}
				if again.Token != ticket.Token || again.Span != c.Span || ticket.Mark != mark || again.Mark != mark ||
					again.Left < 40*time.Second {
					t.Errorf("Enter was answered %+v, and its repeat %+v", ticket, again)
				}
				if after := seen(t, other, "k"); !reflect.DeepEqual(before, after) {
					t.Errorf("the line was %+v before its claim had a row, and is %+v", before, after)
				}
				s.sane(t)
				leave(t, b, ticket)
				s.sane(t)
			}
		}
		// A place that lingers is one of a claim with a row.
		lingering := hold(t, b, claim("k"))
		must(t, b.Leave(soon(t), lingering, driver.Exit{Mark: "ran", Linger: 100 * time.Millisecond}))
		next := granted(t, other, enter(t, other, claim("k")))
		if next.Mark != "ran" {
			t.Errorf("the mark is %q; want ran", next.Mark)
		}
		leave(t, other, next)
		empty(t, b)
		s.sane(t)
	})
}

// TestLinesAreListedInWhicheverPlaceTheirClaimsAre lists lines with claims in both places,
// among lines that are free.
func TestLinesAreListedInWhicheverPlaceTheirClaimsAre(t *testing.T) {
	polled(t, onServers, func(t *testing.T, s *store, b *sqllock.Backend) {
		var want []string
		for i := range 12 {
			key := fmt.Sprintf("k%02d", i)
			ticket := hold(t, b, claim(key))
			if i%4 == 0 {
				leave(t, b, ticket)
				continue
			}
			if i%2 == 1 {
				busy(t, b, key)
			}
			want = append(want, key)
		}
		for _, prefix := range []string{"", "k", "k0", "k1", "k05", "k06", "l"} {
			var got []string
			for l, err := range b.Lines(soon(t), prefix) {
				must(t, err)
				got = append(got, l.Key)
			}
			those := slices.DeleteFunc(slices.Clone(want), func(key string) bool {
				return !strings.HasPrefix(key, prefix)
			})
			if !slices.Equal(got, those) {
				t.Errorf("of %q the lines %q are listed; want %q", prefix, got, those)
			}
		}
		leaveAll(t, b)
	})
}

// TestAKeptClaimEndsWithItsLease lets a lease end while the line keeps the claim.
func TestAKeptClaimEndsWithItsLease(t *testing.T) {
	polled(t, onServers, func(t *testing.T, s *store, b *sqllock.Backend) {
		for _, name := range []string{"Renew", "Leave", "Break", "Enter"} {
			dead := hold(t, b, claim("k"))
			if !s.keeps(t, "k") {
				t.Fatal("the line does not keep the claim")
			}
			s.do(t, "UPDATE fencelock_line SET {ends} = 1")
			for l, err := range b.Lines(soon(t), "") {
				t.Errorf("a dead claim is listed: %+v, %v", l, err)
			}
			if name != "Enter" {
				gone(t, name+" after the lease", verbs(b, dead)[name](soon(t)))
			}
			next := hold(t, b, noWait(claim("k")))
			if next.Token <= dead.Token {
				t.Errorf("token %d after %d", next.Token, dead.Token)
			}
			leave(t, b, next)
			s.sane(t)
		}
	})
}

// TestBreakOfAKeptClaim breaks by a token in the middle of what the claim has reserved.
func TestBreakOfAKeptClaim(t *testing.T) {
	polled(t, onServers, func(t *testing.T, s *store, b *sqllock.Backend) {
		c := claim("k")
		c.Span = 64
		ticket := hold(t, b, c)
		for _, none := range []int64{ticket.Token - 1, ticket.Token + 64} {
			gone(t, "Break of a token that nobody has", b.Break(soon(t), "k", none, "", 0))
		}
		leave(t, b, ticket)
		ticket = hold(t, b, c)
		well(t, "Break", b.Break(soon(t), "k", ticket.Token+63, "enough", 0))
		for name, err := range map[string]error{
			"Enter": second(b.Enter(soon(t), c)), "Renew": renew(b, soon(t), ticket),
		} {
			var gone driver.GoneError
			if !errors.As(err, &gone) || !gone.Broken || gone.Reason != "enough" {
				t.Errorf("%s of a broken claim answered %v; want that", name, err)
			}
		}
		gone(t, "Leave of a broken claim", b.Leave(soon(t), ticket, driver.Exit{}))
		use(t, b, "k")
	})
}

// TestAnIdOfNoBytesIsNobodys: a line that keeps no claim has no ID, which is not an empty one.
func TestAnIdOfNoBytesIsNobodys(t *testing.T) {
	polled(t, []kind{mariaDB, mariaDB.with("ClientFoundRows", "clientFoundRows=true")}, func(t *testing.T, s *store, b *sqllock.Backend) {
		ticket := hold(t, b, claim("k"))
		leave(t, b, ticket)
		ticket.ID = ""
		gone(t, "Renew without an ID", renew(b, soon(t), ticket))
	})
}

// TestSpansDoNotOverlap draws tokens in each of the ways that there are. The counter of the line
// is behind each span at once: a busy machine may be so slow that the clock is, too.
func TestSpansDoNotOverlap(t *testing.T) {
	polled(t, all, func(t *testing.T, s *store, b *sqllock.Backend) {
		var last int64
		next := func(what string, ticket driver.Ticket) driver.Ticket {
			t.Helper()
			if ticket.Token <= last {
				t.Errorf("%s got token %d, and those up to %d are others'", what, ticket.Token, last)
			}
			last = ticket.Token + ticket.Span - 1
			if counter := ask[int64](t, s, "SELECT last FROM fencelock_line"); counter < last {
				t.Errorf("%s reserved the tokens up to %d, and the counter is %d", what, last, counter)
			}
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
	})
}

// TestTombstoneOutlivesItsLine has a tombstone last longer than an idle line is remembered.
func TestTombstoneOutlivesItsLine(t *testing.T) {
	polled(t, []kind{postgres}, func(t *testing.T, s *store, b *sqllock.Backend) {
		c := ttl(claim("k"), 100*time.Hour)
		gone(t, "Leave of nobody", b.Leave(soon(t), driver.Ticket{Claim: c}, driver.Exit{Tombstone: true}))
		for _, how := range []string{"UPDATE fencelock_line SET last = 1",
			"DELETE FROM fencelock_line WHERE key = 'k'"} {
			s.do(t, how)
			s.do(t, "SELECT * FROM fencelock_sweep(1000, 7)")
			s.do(t, "SELECT * FROM fencelock_sweep(1000, 7)")
			use(t, b, "k") // the row of the line is there, if it was not
			gone(t, "an Enter after its Leave and "+how, second(b.Enter(soon(t), c)))
		}
	})
}

// TestWhatWaitsForTheDisk asks which steps let their transaction commit without waiting for
// the disk: those that grant nobody anything and promise nothing.
func TestWhatWaitsForTheDisk(t *testing.T) {
	polled(t, []kind{postgres}, func(t *testing.T, s *store, b *sqllock.Backend) {
		use(t, b, "k")
		const (
			enters = "fencelock_enter('k', ?::bytea || 'x', 1048576, 1048576, 60000000, %v, 1, 7, '', '')"
			leaves = "fencelock_leave('k', ?, '%s', %d, %d, 7)"
		)
		plain := fmt.Sprintf(leaves, "", 0, 0)
		for _, tt := range []struct {
			what               string
			held, apart, waits bool
			step               string // ? is the ID of the holder
			lazy               bool
		}{
			{what: "a grant", step: fmt.Sprintf(enters, true)},
			{what: "a try that is refused", held: true, step: fmt.Sprintf(enters, true), lazy: true},
			{what: "a place in line", held: true, step: fmt.Sprintf(enters, false)},
			{what: "a Leave from the row of the line", held: true, step: plain, lazy: true},
			{what: "a Leave of the only claim", held: true, apart: true, step: plain, lazy: true},
			{what: "a Leave that lets somebody in", held: true, waits: true, step: plain},
			{what: "a Leave with a mark", held: true, step: fmt.Sprintf(leaves, "m", 0, 0)},
			{what: "a Leave that lingers", held: true, step: fmt.Sprintf(leaves, "", 60_000_000, 0)},
			{what: "a Leave with a tombstone", held: true, step: fmt.Sprintf(leaves, "", 0, 60_000_000)},
		} {
			holder := claim("k")
			if tt.held {
				hold(t, b, holder)
			}
			if tt.apart {
				busy(t, b, "k")
			}
			if tt.waits {
				wait(t, b, claim("k"))
			}
			x := s.begin(t)
			x.do("SELECT * FROM "+tt.step, []byte(holder.ID))
			var setting string
			if err := x.conn.QueryRowContext(soon(t), "SHOW synchronous_commit").Scan(&setting); err != nil ||
				(setting == "off") != tt.lazy {
				t.Errorf("%s: synchronous_commit is %q, %v", tt.what, setting, err)
			}
			x.undo()
			s.do(t, "DELETE FROM fencelock_claim")
			s.do(t, "DELETE FROM fencelock_line")
		}
	})
}
