//go:build verify

package doctor_test

import (
	"path/filepath"
	"testing"

	"github.com/fencelock/fencelock/doctor"
	"github.com/fencelock/fencelock/internal/testserver"
)

// TestRaceOnEachStore: one of 32 racers wins, on every store.
func TestRaceOnEachStore(t *testing.T) {
	t.Parallel()
	urls := map[string]func(t *testing.T) string{
		"Redis":      func(t *testing.T) string { return testserver.Redis(t).URL() },
		"PostgreSQL": func(t *testing.T) string { return testserver.Postgres(t).URL() },
		"MariaDB":    func(t *testing.T) string { return testserver.MariaDB(t).URL() },
		"ZooKeeper":  func(t *testing.T) string { return testserver.ZooKeeper(t).URL() },
		"etcd":       func(t *testing.T) string { return testserver.Etcd(t).URL() },
		"SQLite":     func(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "locks.db") },
	}
	for name, url := range urls {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, err := doctor.Race(t.Context(), racers(t, url(t), 8), 32, 100)
			if err != nil || !o.Excludes() || o.One != o.Rounds || o.Unanswered > 0 {
				t.Errorf("Race counted %+v, %v; want one winner in each round", o, err)
			}
		})
	}
}
