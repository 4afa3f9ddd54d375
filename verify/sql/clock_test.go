package sql_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest"
	"github.com/fencelock/fencelock/internal/swapsql"
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
			if now := ask[int64](t, s, "SELECT "+swapsql.MySQL.SQL("{now}", "")); now != at.UnixMicro() {
				t.Errorf("at %v the clock is %v", at, time.UnixMicro(now).UTC())
			}
		}
	}
}
