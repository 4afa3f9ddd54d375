package sql_test

import (
	"database/sql"
	"slices"
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

// trials puts each kind of database through a trial, and sees that nothing is left.
func trials(t *testing.T, kinds []kind, lease time.Duration, f func(t *testing.T, s *store, x worker.Trial[place])) {
	t.Helper()
	each(t, kinds, func(t *testing.T, s *store) {
		b := s.backend(t)
		use(t, b, "first") // its connections and tables are there
		f(t, s, worker.Trial[place]{Store: s.place(), Backend: b, Lease: lease, Late: time.Second})
		empty(t, b)
		s.sane(t)
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
	trials(t, everyWay, 2*time.Second, func(t *testing.T, _ *store, x worker.Trial[place]) { x.KilledHolder(t) })
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
			p := s.start(t, worker.Ready, time.Minute, 0)
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

// TestOtherProcessIsWokenAtOnce measures how long a lock takes from one process to
// another. It asserts only that the median is far below the look of about half a second that
// stands behind the wake-up, in one of three series: a busy machine may be late for a while.
func TestOtherProcessIsWokenAtOnce(t *testing.T) {
	each(t, all, func(t *testing.T, s *store) {
		b := s.backend(t)
		const rounds, series = 15, 3
		holder := hold(t, b, claim("k"))
		p := s.start(t, worker.Hold, time.Minute, rounds*series)
		var median time.Duration
		for range series {
			var took []time.Duration
			for range rounds {
				p.Hears("waits")
				pause(settled)
				began := time.Now()
				leave(t, b, holder)
				_, at := p.Held()
				took = append(took, at.Sub(began))
				// In line before the other leaves, or it would find the lock free again.
				holder = wait(t, b, claim("k"))
				p.Tell()
				holder = granted(t, b, holder)
				p.Hears("left ok")
			}
			slices.Sort(took)
			median = took[rounds/2]
			t.Logf("from Leave to the grant in another process: median %v, longest %v", median, took[rounds-1])
			if median < 200*time.Millisecond { // real time: without a wake-up it is half a second
				break
			}
		}
		p.Kill()
		if median >= 200*time.Millisecond { // real time: as above
			t.Errorf("the median hand-over between processes took %v; want less than a waiter takes that looks by itself", median)
		}
		leaveAll(t, b)
	})
}
