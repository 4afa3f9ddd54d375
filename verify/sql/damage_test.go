package sql_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/sqllock"
)

// TestRowsDeletedByHandWakeTheNext is what an operator with an SQL shell does.
func TestRowsDeletedByHandWakeTheNext(t *testing.T) {
	polled(t, all, func(t *testing.T, s *store, b *sqllock.Backend) {
		holder := hold(t, b, claim("k"))
		w := wait(t, b, claim("k"))
		s.do(t, "DELETE FROM fencelock_claim WHERE token = ?", holder.Token)
		w = granted(t, b, w)
		gone(t, "Leave of the deleted claim", b.Leave(soon(t), holder, driver.Exit{}))
		if s.dialect == sqllock.Postgres {
			s.do(t, "UPDATE fencelock_claim SET token = token + 3600000000") // the clock was set back since
			w.Token += 3600000000
			s.do(t, "DELETE FROM fencelock_line")
			next := wait(t, b, claim("k"))
			if next.Token <= w.Token {
				t.Errorf("token %d after %d: the claims in line were forgotten with the line's row", next.Token,
					w.Token)
			}
			leave(t, b, w)
			w = granted(t, b, next)
		}
		leave(t, b, w)
	})
}

// unchecked lets the tables of claims take any row.
var unchecked = map[sqllock.Dialect]string{
	sqllock.SQLite: "PRAGMA ignore_check_constraints = ON",
	sqllock.Postgres: `DO $$ DECLARE c record; BEGIN
		FOR c IN SELECT conname FROM pg_constraint WHERE conrelid = 'fencelock_claim'::regclass AND contype = 'c' LOOP
			EXECUTE 'ALTER TABLE fencelock_claim DROP CONSTRAINT ' || c.conname;
		END LOOP; END $$`,
}

// TestDamagedRowsAreAnErrorNotAPanic puts rows into the tables that no step writes.
func TestDamagedRowsAreAnErrorNotAPanic(t *testing.T) {
	damages := map[sqllock.Dialect][]string{
		sqllock.SQLite: {"claim SET weight = -5", "claim SET weight = 0", "claim SET weight = 1 << 40",
			"claim SET capacity = 0",
			"claim SET capacity = 1 << 62", "claim SET token = -1"},
		sqllock.Postgres: {"claim SET weight = 1::bigint << 62", "claim SET capacity = 1::bigint << 62",
			"line SET weight = 1::bigint << 62", "line SET capacity = 1::bigint << 62",
			"line SET span = 1::bigint << 62",
			"line SET span = -9223372036854775807"},
	}
	each(t, []kind{sqlite, postgres}, func(t *testing.T, s *store) {
		s.db.SetMaxOpenConns(1)
		b := s.backendOn(t, s.db)
		use(t, b, "k")
		s.do(t, unchecked[s.dialect])
		for _, damage := range append(damages[s.dialect], "claim SET token = 9223372036854775807",
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
			if err != nil && s.dialect == sqllock.SQLite && !permanent(err) {
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
			for _, table := range []string{"fencelock_claim", "fencelock_line", "{tombstones}"} {
				s.do(t, "DELETE FROM "+table)
			}
			use(t, b, "k")
		}
	})
}

// TestDamageIsRefusedByTheDatabase puts rows into the tables that no step writes.
func TestDamageIsRefusedByTheDatabase(t *testing.T) {
	polled(t, []kind{mariaDB}, func(t *testing.T, s *store, b *sqllock.Backend) {
		holder := hold(t, b, claim("k"))
		damages := []string{
			"line SET weight = -5", "line SET weight = 0", "line SET weight = 1 << 40",
			"line SET capacity = 1 << 40, weight = 1 << 40",
			"line SET span = 0", "line SET span = last + 1", "line SET front = last", "",
			"claim SET weight = -5", "claim SET weight = 0", "claim SET weight = 1 << 40",
			"claim SET capacity = 1 << 40, weight = 1 << 40",
			"claim SET token = -1", "claim SET token = 9223372036854775807", "claim SET span = 0",
			"line SET last = 9223372036854775807", "line SET last = -1",
		}
		for _, damage := range damages {
			if damage == "" {
				busy(t, b, "k") // the claim gets a row of its own
				continue
			}
			var e *mysql.MySQLError // as MariaDB and MySQL number it
			_, err := s.db.Exec("UPDATE fencelock_" + damage)
			if !errors.As(err, &e) || e.Number != 4025 && e.Number != 3819 {
				t.Errorf("%s: %v; want the database to refuse it", damage, err)
			}
		}
		// The last number there is: an error, not a token from the beginning.
		s.do(t, "UPDATE fencelock_line SET last = 9223372036854710272")
		for _, lock := range []string{"held", "free"} {
			if _, err := b.Enter(soon(t), claim("k")); !permanent(err) || !strings.Contains(err.Error(), "damaged") {
				t.Errorf("Enter of a %s lock at the end of all numbers answered %v; want ErrPermanent", lock, err)
			}
			if lock == "held" {
				leave(t, b, holder)
			}
		}
	})
}
