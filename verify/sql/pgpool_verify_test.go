//go:build verify

package sql_test

import (
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/internal/faultproxy"
	"github.com/fencelock/fencelock/internal/testserver"
)

// TestPgpoolWithALaggingStandby is TestReadsAreAnsweredByAStandby with Pgpool-II, which sends all reads
// that it knows of to the standby, and the standby is two seconds behind.
func TestPgpoolWithALaggingStandby(t *testing.T) {
	t.Parallel()
	t.Run("Postgres", func(t *testing.T) {
		t.Parallel()
		primary := testserver.Postgres(t, testserver.Config("wal_level = replica", "max_wal_senders = 4"))
		link := faultproxy.Start(t, primary.Addr(), faultproxy.Framer{})
		standby := testserver.PostgresStandby(t, primary, link.Addr(), testserver.Config("recovery_min_apply_delay = 2s"))
		s := &store{kind: postgres, on: primary}
		db, read := s.openDSN(t, primary.URL()), s.openDSN(t, standby.URL())
		use(t, s.backendOn(t, db), "n")
		until(t, "the standby has the line", func() bool {
			var n int
			return read.QueryRow("SELECT count(*) FROM fencelock_swap").Scan(&n) == nil && n == 1
		})
		pool := testserver.Pgpool(t, primary, standby)
		// Pgpool sends what it does not take for a write to the standby.
		plain := s.openDSN(t, pool.URL()+"&default_query_exec_mode=exec")
		if !column[bool](t, plain, "SELECT current_setting('transaction_read_only') = 'on'")[0] {
			t.Fatal("Pgpool has asked the primary; this test shows nothing")
		}
		s.handOversAt(t, db, pool.Addr())
		b := s.new(t, s.openDSN(t, pool.URL()+"&default_query_exec_mode=exec"), nil)
		e, err := b.Examine(soon(t), time.Minute)
		must(t, err)
		var codes []string
		for _, f := range e.Findings {
			codes = append(codes, f.Code)
		}
		if !strings.Contains(strings.Join(codes, " "), "postgres-read-splitting") {
			t.Errorf("the findings are %v; want postgres-read-splitting", codes)
		}
	})
}
