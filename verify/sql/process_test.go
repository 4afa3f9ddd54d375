package sql_test

import (
	"database/sql"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/worker"
	"github.com/fencelock/fencelock/sqllock"
)

// place is how a worker reaches a store.
type place struct {
	Driver, DSN string
	Dialect     sqllock.Dialect
	Pooled      bool
}

func (p place) open() (driver.Backend, func(), error) {
	db, err := sql.Open(p.Driver, p.DSN)
	if err != nil {
		return nil, nil, err
	}
	db.SetMaxOpenConns(4)
	return sqllock.New(db, p.Dialect, options(p.Dialect, p.Pooled, p.DSN)), func() { db.Close() }, nil
}

func (s *store) place() place {
	return place{s.driver, s.dsn, s.dialect, s.pooled}
}

// start starts a worker.
func (s *store) start(t testing.TB, do worker.Job, lease time.Duration, n int) *worker.Process {
	t.Helper()
	return worker.Start(t, worker.Order[place]{Do: do, Store: s.place(), Key: "k", TTL: lease, N: n})
}

// expire ends the lease of the first claim of a line.
func (s *store) expire(t testing.TB) {
	t.Helper()
	s.do(t, "UPDATE fencelock_swap SET expires = 1, open_until = 0")
}

// trials puts each kind of database through a trial, and sees that nothing is left. What is not over a minute after its
// lease never ends.
func trials(t *testing.T, kinds []kind, lease time.Duration, f func(t *testing.T, s *store, x worker.Trial[place])) {
	t.Helper()
	each(t, kinds, func(t *testing.T, s *store) {
		b := s.backend(t)
		use(t, b, "first") // its connections and tables are there
		f(t, s, worker.Trial[place]{Store: s.place(), Backend: b, Lease: lease, Late: time.Minute})
		empty(t, b)
	})
}

func TestProcessesNeverOverlap(t *testing.T) {
	kinds := append(rarely(barePath, serializable, repeatableRead), all...)
	trials(t, kinds, time.Minute, func(t *testing.T, s *store, x worker.Trial[place]) {
		if s.on == nil {
			x.NeverOverlap(t, 4, 200)
		} else {
			x.NeverOverlap(t, 4, 60)
		}
	})
}

func TestKilledHolderIsGoneAfterItsLease(t *testing.T) {
	each(t, everyWay, func(t *testing.T, s *store) {
		b := s.backend(t)
		use(t, b, "k")
		p := s.start(t, worker.Hold, 10*time.Minute, 1)
		p.Held()
		next := wait(t, b, claim("k"))
		p.Kill()
		s.expire(t)
		leave(t, b, granted(t, b, next))
		empty(t, b)
	})
}

func TestKilledWaiterDelaysNobodyBeyondItsLease(t *testing.T) {
	trials(t, everyWay, 2*time.Second, func(t *testing.T, _ *store, x worker.Trial[place]) { x.KilledWaiter(t) })
}

// TestKilledAtAnyMomentNothingIsTorn kills processes at random while others work.
func TestKilledAtAnyMomentNothingIsTorn(t *testing.T) {
	kinds := append(rarely(barePath, serializable), all...)
	trials(t, kinds, 500*time.Millisecond, func(t *testing.T, s *store, x worker.Trial[place]) {
		x.KilledAtAnyMoment(t, 15, func() {
			if s.on == nil {
				steps.Same(t, "integrity check", ask[string](t, s, "PRAGMA integrity_check"), "ok")
			}
		})
	})
}

func TestProcessesCreateTablesAtOnce(t *testing.T) {
	each(t, append(rarely(barePath, serializable), all...), func(t *testing.T, s *store) {
		var ps []*worker.Process
		for range 4 {
			p := s.start(t, worker.Ready, 10*time.Minute, 0)
			p.Hears("ready")
			ps = append(ps, p)
		}
		for _, p := range ps {
			p.Tell()
		}
		for _, p := range ps {
			p.Succeeds()
		}
		empty(t, s.backend(t))
	})
}

// TestOtherProcessIsTold: processes that wait listen to the attributes of the file, which SQLite's writes to its log do
// not change. Servers notify as TestNotifiesOnlyWhenSomebodyWaits shows, or are asked.
func TestOtherProcessIsTold(t *testing.T) {
	only(t, sqlite, func(t *testing.T, s *store) {
		b := s.backend(t)
		holder := hold(t, b, claim("k"))
		p := s.start(t, worker.Hold, 10*time.Minute, 1)
		p.Hears("waits")
		must(t, os.Chtimes(s.name, time.Time{}, time.Unix(1, 0)))
		leave(t, b, holder)
		info, err := os.Stat(s.name)
		must(t, err)
		if at := info.ModTime(); at.Before(time.Now().Add(-time.Hour)) && runtime.GOOS == "linux" { // others poll
			t.Errorf("after a hand-over the file was changed at %v; want now", at)
		}
		p.Held()
		p.Tell()
		p.Succeeds()
		empty(t, b)
	})
}
