package sql_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/sqllock"
)

// TestRowsDeletedByHandWakeTheNext is what an operator with an SQL shell does.
func TestRowsDeletedByHandWakeTheNext(t *testing.T) {
	polled(t, []kind{sqlite}, func(t *testing.T, s *store, b *sqllock.Backend) {
		holder := hold(t, b, claim("k"))
		w := wait(t, b, claim("k"))
		s.do(t, "DELETE FROM fencelock_claim WHERE token = ?", holder.Token)
		w = granted(t, b, w)
		gone(t, "Leave of the deleted claim", b.Leave(soon(t), holder, driver.Exit{}))
		leave(t, b, w)
	})
}

// TestDamagedRowsAreAnErrorNotAPanic puts rows into the tables that no step writes.
func TestDamagedRowsAreAnErrorNotAPanic(t *testing.T) {
	damages := []string{"claim SET weight = -5", "claim SET weight = 0", "claim SET weight = 1 << 40",
		"claim SET capacity = 0", "claim SET capacity = 1 << 62", "claim SET token = -1"}
	only(t, sqlite, func(t *testing.T, s *store) {
		s.db.SetMaxOpenConns(1)
		b := s.backendOn(t, s.db)
		use(t, b, "k")
		s.do(t, "PRAGMA ignore_check_constraints = ON")
		for _, damage := range append(damages, "claim SET token = 9223372036854775807",
			"claim SET span = 9223372036854775807", "line SET last = 9223372036854775807",
			"line SET last = 9223372036854775000") {
			holder := hold(t, b, claim("k"))
			if strings.HasPrefix(damage, "claim") {
				busy(t, b, "k")
			}
			s.do(t, "UPDATE fencelock_"+damage)
			ctx := soon(t)
			// Whatever it answers, it may not crash, and may not let a second one in.
			ticket, err := b.Enter(ctx, claim("k"))
			if err == nil && ticket.Granted {
				t.Errorf("%s: a second claim was granted beside a damaged one", damage)
			}
			if err != nil && !permanent(err) {
				t.Errorf("%s: Enter answered %v; want ErrPermanent", damage, err)
			}
			b.Renew(ctx, []driver.Ticket{holder})
			brief, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
			b.Await(brief, holder)
			cancel()
			b.Line(ctx, "k")
			for range b.Lines(ctx, "") {
			}
			b.Break(ctx, "k", holder.Token, "", 0)
			b.Leave(ctx, holder, driver.Exit{Mark: "m"})
			b.Leave(ctx, driver.Ticket{Claim: holder.Claim}, driver.Exit{Tombstone: true})
			// What the error says to do helps.
			for _, table := range []string{"fencelock_claim", "fencelock_line", "fencelock_tombstone"} {
				s.do(t, "DELETE FROM "+table)
			}
			use(t, b, "k")
		}
	})
}

// TestDamagedLinesAreAnErrorNotAPanic puts texts and numbers into the tables that no step writes. Whatever is
// answered, nobody crashes, and no second claim is let in.
func TestDamagedLinesAreAnErrorNotAPanic(t *testing.T) {
	polled(t, onServers, func(t *testing.T, s *store, b *sqllock.Backend) {
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
			b.Break(ctx, "k", holder.Token, "", 0)
			b.Leave(ctx, holder, driver.Exit{Mark: "m"})
			b.Leave(ctx, driver.Ticket{Claim: holder.Claim}, driver.Exit{Tombstone: true})
			s.do(t, "DELETE FROM fencelock_swap")
			s.do(t, "DELETE FROM fencelock_lease")
		}
	})
}

// TestRowsDeletedOnAServerWakeTheNext is what an operator with an SQL shell does: the row of the line goes, and who
// waited enters again.
func TestRowsDeletedOnAServerWakeTheNext(t *testing.T) {
	polled(t, onServers, func(t *testing.T, s *store, b *sqllock.Backend) {
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
