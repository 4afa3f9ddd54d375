package sql_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/sqllock"
)

// TestLinesAreListed lists lines with claims, among lines that are free.
func TestLinesAreListed(t *testing.T) {
	polled(t, all, func(t *testing.T, s *store, b *sqllock.Backend) {
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

// TestBreakByAReservedToken breaks by a token in the middle of what the claim has reserved.
func TestBreakByAReservedToken(t *testing.T) {
	polled(t, all, func(t *testing.T, s *store, b *sqllock.Backend) {
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
			if counter := ask[int64](t, s, "SELECT last FROM fencelock_swap"); counter < last {
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

// TestClaimThatIsAloneEndsWithItsLease lets a lease end that is beside the document.
func TestClaimThatIsAloneEndsWithItsLease(t *testing.T) {
	polled(t, all, func(t *testing.T, s *store, b *sqllock.Backend) {
		for _, name := range []string{"Renew", "Leave", "Break", "Enter"} {
			dead := hold(t, b, claim("k"))
			s.do(t, "UPDATE fencelock_swap SET expires = 1, open_until = 0")
			for l, err := range b.Lines(soon(t), "") {
				t.Errorf("a dead claim is listed: %+v, %v", l, err)
			}
			if name == "Leave" {
				busyUntilNow(t, s) // a Leave of who is alone goes by the line as it was
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

// busyUntilNow has another claim take the place of one whose lease has ended, and leave.
func busyUntilNow(t *testing.T, s *store) {
	t.Helper()
	other := s.polling(t)
	leave(t, other, hold(t, other, noWait(claim("k"))))
}
