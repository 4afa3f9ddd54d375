package sql_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest"
	"github.com/fencelock/fencelock/internal/testserver"
)

// TestClockInTheNightThatHasAnHourTwice has a server in a zone with summer time, whose
// SYSDATE may be set, which tells what the schema makes of any moment: around the two
// changes of the year the clock may not jump, or leases end an hour early.
func TestClockInTheNightThatHasAnHourTwice(t *testing.T) {
	t.Setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
	t.Run("MariaDB", hourTwice)
}

func hourTwice(t *testing.T) {
	s := ownServer(t, mariaDB, testserver.Config("sysdate-is-now"))
	drivertest.Model(t, func(t *testing.T) driver.Backend { return s.polling(t) }, 2)
	essentials(t, s.polling(t), s.polling(t))
	s.db.SetMaxOpenConns(1) // whose timestamp is set
	// A check of the check: here an hour comes twice.
	autumn := time.Date(2026, 10, 25, 0, 30, 0, 0, time.UTC)
	spring := time.Date(2026, 3, 29, 0, 30, 0, 0, time.UTC)
	local := func(at time.Time) string {
		s.do(t, fmt.Sprintf("SET timestamp = %d", at.Unix()))
		return ask[string](t, s, "SELECT SYSDATE()")
	}
	if first, again := local(autumn), local(autumn.Add(time.Hour)); first != again {
		t.Fatalf("half past midnight UTC and an hour later are %s and %s; want one local time", first, again)
	}
	for _, change := range []time.Time{autumn, spring} {
		for minute := -90; minute < 150; minute += 10 {
			at := change.Add(time.Duration(minute)*time.Minute + 123456*time.Microsecond)
			s.do(t, fmt.Sprintf("SET timestamp = %d.%06d", at.Unix(), at.Nanosecond()/1000))
			s.do(t, "CALL fencelock_v1_clock(@now)")
			if now := ask[int64](t, s, "SELECT @now"); now != at.UnixMicro() {
				t.Errorf("at %v the clock is %v", at, time.UnixMicro(now).UTC())
			}
			// The first claim on a key takes the long way, the second the quick one.
			for _, id := range []string{"long", "quick"} {
				key := fmt.Sprint("at ", at.UnixMicro())
				s.do(t, s.enterSQL(key, id))
				since := ask[int64](t, s, "SELECT since FROM fencelock_line WHERE {alone} AND lock_key = ?", key)
				if since != at.UnixMicro() {
					t.Errorf("at %v a claim enters the %s way at %v", at, id, time.UnixMicro(since).UTC())
				}
				// By its clock the claim had not expired: else it gets a row of its own, which is deleted.
				before := deletedRows(t, s)
				left := ask[string](t, s, fmt.Sprintf("CALL fencelock_v1_leave('%s', '%s', '', 0, 0, 1)", key, id))
				if after := deletedRows(t, s); left != "left" || after != before {
					t.Errorf("at %v a claim does not leave the quick way: %q, %d rows are deleted", at, left,
						after-before)
				}
			}
		}
	}
}

// deletedRows counts what the session has deleted.
func deletedRows(t *testing.T, s *store) (n int) {
	t.Helper()
	var name string
	must(t, s.db.QueryRowContext(soon(t), "SHOW SESSION STATUS LIKE 'Handler_delete'").Scan(&name, &n))
	return n
}
