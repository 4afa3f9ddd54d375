//go:build verify && unix

package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/faultproxy"
	"github.com/fencelock/fencelock/internal/testserver"
)

// TestFailoverOfPostgresWithoutACut: the standby is promoted, the old primary turns read-only and
// goes on, and the address leads to the new one from then on. No connection is cut. run keeps its lock,
// who waits gets the lock, and serve grants locks.
func TestFailoverOfPostgresWithoutACut(t *testing.T) {
	t.Parallel()
	primary := testserver.Postgres(t, testserver.Config("wal_level = replica", "max_wal_senders = 4"))
	standby := testserver.PostgresStandby(t, primary, primary.Addr())
	address := faultproxy.Start(t, primary.Addr(), faultproxy.Framer{})
	s := newStage(t, strings.Replace(primary.URL(), primary.Addr(), address.Addr(), 1))
	holder := s.holds("sleep 1000", "--ttl", "6s")
	waiter := s.start("fencelock", "run", "--ttl", "60s", "-v", "n", "--", "touch", "got")
	v := s.serves()
	v.want(200, "/v1/acquire", object{"key": "before"})
	before, after := sqlOn(t, primary), sqlOn(t, standby)
	const waiting = "SELECT count(*) FROM fencelock_swap WHERE lock_key = 'n' AND (arrivals <> '' AND line <> '' OR " +
		"length(arrivals) - length(replace(arrivals, '\"at\":', '')) > 5 OR line LIKE '%},{%')"
	eventually(t, "the command waits", func() bool { return one[int](t, before, waiting) == 1 })
	eventually(t, "the standby has it all", func() bool {
		var there bool
		err := after.QueryRow(t.Context(), "SELECT ("+waiting+") = 1 AND "+
			"EXISTS (SELECT FROM fencelock_swap WHERE lock_key = 'before')").Scan(&there)
		return err == nil && there
	})

	one[string](t, after, "SELECT pg_promote()::text")
	for _, text := range []string{"ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()"} {
		_, err := before.Exec(t.Context(), text)
		must(t, err)
	}
	address.Aim(standby.Addr())

	const lease = "SELECT expires FROM fencelock_swap WHERE lock_key = 'n'"
	last := one[int64](t, after, lease)
	for range 3 {
		next := last
		eventually(t, "the lease is renewed at the new primary", func() bool {
			next = max(next, one[int64](t, after, lease))
			return next > last
		})
		last = next
	}
	if holder.ended() {
		t.Fatalf("the holder has lost its lock: %s", holder.err.String())
	}
	eventually(t, "serve grants a lock", func() bool {
		status, _ := v.post("/v1/acquire", object{"key": "after " + time.Now().String()})
		return status == 200
	})
	holder.signal("TERM")
	waiter.wantExit(0)
	steps.OK(t, steps.ErrOf(os.Stat(s.path("got"))))
}
