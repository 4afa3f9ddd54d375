package sql_test

import (
	"context"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/sqllock"
)

// TestDamagedRowsAreAnErrorNotAPanic puts texts and numbers into the tables that no step writes. Whatever is
// answered, nobody crashes, and no second claim is let in.
func TestDamagedRowsAreAnErrorNotAPanic(t *testing.T) {
	polled(t, all, func(t *testing.T, s *store, b *sqllock.Backend) {
		for _, damage := range []string{
			"line = 'x'", `line = '{"format":2}'`, `line = '{"format":1,"claims":[{"id":7}]}'`, "arrivals = 'x'",
			"last = 9223372036854775807, version = version + 1", "last = 9223372036854775000, version = version + 1",
			"last = -1, version = version + 1",
		} {
			use(t, b, "k")
			holder := hold(t, b, claim("k"))
			s.do(t, "UPDATE fencelock_swap SET open_until = 0, "+damage)
			ctx := soon(t)
			ticket, err := b.Enter(ctx, claim("k"))
			if err == nil && ticket.Granted || err != nil && !permanent(err) {
				t.Errorf("%s: Enter answered %+v, %v; want ErrPermanent", damage, ticket, err)
			}
			b.Renew(ctx, []driver.Ticket{holder})
			brief, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
			b.Await(brief, holder)
			cancel()
			b.Line(ctx, "k")
			for range b.Lines(ctx, "") {
			}
			b.Break(ctx, "k", holder.Token, driver.Break{})
			b.Leave(ctx, holder, driver.Exit{Mark: "m"})
			b.Leave(ctx, driver.Ticket{Claim: holder.Claim}, driver.Exit{Tombstone: true})
			s.do(t, "DELETE FROM fencelock_swap")
			s.do(t, "DELETE FROM fencelock_lease")
		}
	})
}

// TestRowsDeletedByHandWakeTheNext: an operator with an SQL shell deletes the row of the line. Those who waited
// enter again.
func TestRowsDeletedByHandWakeTheNext(t *testing.T) {
	polled(t, all, func(t *testing.T, s *store, b *sqllock.Backend) {
		holder, w := hold(t, b, claim("k")), wait(t, b, claim("k"))
		s.do(t, "DELETE FROM fencelock_swap")
		gone(t, "Leave of the deleted claim", b.Leave(soon(t), holder, driver.Exit{}))
		until(t, "who waits is told that its claim is gone", func() bool {
			_, err := b.Await(soon(t), w)
			return driver.Gone(err)
		})
		use(t, b, "k")
	})
}
