//go:build unix

package torture

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/storeurl"
	"github.com/fencelock/fencelock/verify/traffic"
)

// withClock are the stores whose clock the fault steps.
var withClock = map[string]func(t *testing.T) string{
	"sqlite":   func(t *testing.T) string { return "sqlite://" + filepath.Join(t.TempDir(), "locks.db") },
	"redis":    func(t *testing.T) string { return testserver.Redis(t).URL() },
	"postgres": func(t *testing.T) string { return testserver.Postgres(t).URL() },
	"mariadb":  func(t *testing.T) string { return testserver.MariaDB(t).URL() },
}

// A claim that holds a lock alone, claims that have just come behind it, claims that a release has moved, and claims
// that were renewed have their leases in different places. A step ends each of them earlier, and steps of more than a
// lease end them all.
func TestEveryLeaseIsStepped(t *testing.T) {
	const lease = time.Hour
	for name, start := range withClock {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u, err := traffic.ParseURL(start(t))
			steps.Must(t, err)
			s, err := u.Open(t.Context(), storeurl.Config{})
			steps.Must(t, err)
			t.Cleanup(func() { s.Close() })
			steps.Must(t, s.Backend.Open())
			look := manyLeases(t, s.Backend, lease)
			before := look()
			steps.Must(t, stepClock(u)(t.Context(), lease/2))
			after := look()
			for place, left := range after {
				if got := before[place] - left; got < lease/2 || got > lease*3/4 {
					t.Errorf("the lease of claim %s ended in %v, and ends in %v after a step of %v", place, before[place], left, lease/2)
				}
			}
			if len(before) < 25 || len(after) != len(before) {
				t.Errorf("%d claims are in line, and %d after a step of %v", len(before), len(after), lease/2)
			}
			steps.Must(t, stepClock(u)(t.Context(), lease*3/4))
			for _, key := range []string{"alone", "came", "moved"} {
				steps.Hold(t, s.Backend, steps.NoWait(steps.Claim(key)))
			}
		})
	}
}

// manyLeases has claims stand in the lines of three keys, and returns what tells how much is left of each lease.
func manyLeases(t *testing.T, b driver.Backend, lease time.Duration) func() map[string]time.Duration {
	t.Helper()
	keys := map[string]int{"alone": 1, "came": 3, "moved": 25}
	tickets := map[string][]driver.Ticket{}
	for key, n := range keys {
		for i := range n {
			one, err := b.Enter(t.Context(), driver.Claim{
				Key: key, ID: fmt.Sprintf("%032x", i+1), Capacity: driver.RW, Weight: driver.RW, TTL: lease, Span: 1,
			})
			steps.Must(t, err)
			tickets[key] = append(tickets[key], one)
		}
	}
	moved := tickets["moved"]
	for i, err := range append(b.Renew(t.Context(), moved[3:6]), b.Leave(t.Context(), moved[0], driver.Exit{})) {
		if err != nil {
			t.Fatal(i, err)
		}
	}
	return func() map[string]time.Duration {
		left := map[string]time.Duration{}
		for key := range keys {
			l, err := b.Line(t.Context(), key)
			steps.Must(t, err)
			for _, c := range l.Claims {
				left[fmt.Sprint(key, " ", c.Token)] = c.Left
			}
		}
		return left
	}
}
