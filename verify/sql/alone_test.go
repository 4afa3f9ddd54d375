package sql_test

import (
	"testing"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/sqllock"
)

// TestAnIdOfNoBytesIsNobodys: a line that keeps no claim has no ID, which is not an empty one.
func TestAnIdOfNoBytesIsNobodys(t *testing.T) {
	polled(t, []kind{mariaDB.with("ClientFoundRows", "clientFoundRows=true")}, func(t *testing.T, s *store, b *sqllock.Backend) {
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
