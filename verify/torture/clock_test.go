//go:build unix

package torture

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/verify/traffic"
)

// TestTheStoresClockSteps: the fault does what it says, to one who holds alone and to a
// line. A step that is shorter than a lease leaves it held, and two that are longer end it.
func TestTheStoresClockSteps(t *testing.T) {
	for name, start := range map[string]func(t *testing.T) string{
		"sqlite":   func(t *testing.T) string { return "sqlite://" + filepath.Join(t.TempDir(), "locks.db") },
		"redis":    func(t *testing.T) string { return testserver.Redis(t).URL() },
		"postgres": func(t *testing.T) string { return testserver.Postgres(t).URL() },
		"mariadb":  func(t *testing.T) string { return testserver.MariaDB(t).URL() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			raw := start(t)
			u, err := traffic.ParseURL(raw)
			if err != nil {
				t.Fatal(err)
			}
			const lease = 60 * time.Second
			ctx := t.Context()
			open := func() traffic.Locks {
				l, err := traffic.Schemes()[u.Scheme].Open(ctx, raw, "", lease)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { l.Close() })
				return l
			}
			holder, other := open(), open()
			try := func(key string) traffic.Outcome {
				_, outcome, _ := other.Take(ctx, traffic.Want{Key: key, Try: true})
				return outcome
			}
			for _, key := range []string{"alone", "line"} {
				if _, _, err := holder.Take(ctx, traffic.Want{Key: key}); err != nil {
					t.Fatal(err)
				}
			}
			// Somebody who gave up waiting has made a line of it.
			short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
			defer cancel()
			_, _, _ = holder.Take(short, traffic.Want{Key: "line"})
			step := func(d time.Duration) {
				if err := stepClock(u)(ctx, d); err != nil {
					t.Fatal(err)
				}
			}
			step(lease * 2 / 5)
			for _, key := range []string{"alone", "line"} {
				if got := try(key); got != traffic.NotNow {
					t.Errorf("after a step of less than a lease, a try of %s answers %v", key, got)
				}
			}
			step(lease * 4 / 5)
			for _, key := range []string{"alone", "line"} {
				if got := try(key); got != traffic.Got {
					t.Errorf("after steps of more than a lease, a try of %s answers %v", key, got)
				}
			}
		})
	}
}
