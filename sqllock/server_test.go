package sqllock

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/swapsql"
)

// slowDatabase is one whose statements take a time, unless they are given up.
type slowDatabase struct {
	takes      atomic.Int64 // ns
	opened     atomic.Int64
	sent       atomic.Int64
	givenUp    chan time.Time // when each was
	heals      chan struct{}  // statements are answered from when it is closed on
	connecting func()         // is called while a connection is opened, unless nil
	endBackend func()
}

func (d *slowDatabase) Connect(context.Context) (sqldriver.Conn, error) {
	d.opened.Add(1)
	if d.connecting != nil {
		d.connecting()
	}
	return &slowConn{d: d}, nil
}

func (d *slowDatabase) Driver() sqldriver.Driver { return nil }

// slowConn is of no use once a statement was given up, as with the drivers of all servers.
type slowConn struct {
	sqldriver.Conn
	d      *slowDatabase
	broken bool
}

func (c *slowConn) QueryContext(ctx context.Context, _ string, _ []sqldriver.NamedValue) (sqldriver.Rows, error) {
	c.d.sent.Add(1)
	select {
	case <-time.After(time.Duration(c.d.takes.Load())): // 1 ns at least: golang/go#78156
		return noRows{}, nil
	case <-c.d.heals:
		return noRows{}, nil
	case <-ctx.Done():
		c.broken = true
		c.d.givenUp <- time.Now()
		return nil, ctx.Err()
	}
}

func (c *slowConn) IsValid() bool { return !c.broken }
func (c *slowConn) Close() error  { return nil }

type noRows struct{ sqldriver.Rows }

func (noRows) Columns() []string { return nil }
func (noRows) Close() error      { return nil }

func (noRows) Next([]sqldriver.Value) error { return io.EOF }

// onSlow runs f with a store on a pool of at most conns connections.
func onSlow(t *testing.T, conns int, takes time.Duration, f func(t *testing.T, s *pool, d *slowDatabase)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d := &slowDatabase{givenUp: make(chan time.Time, 10)}
		d.takes.Store(int64(takes))
		db := sql.OpenDB(d)
		defer db.Close()
		db.SetMaxOpenConns(conns)
		ctx, stop := context.WithCancel(t.Context())
		d.endBackend = stop
		s := newPool(config{ctx: ctx, name: "slow", db: db, dialect: &postgres}).(*pool)
		defer s.close()
		defer stop()
		f(t, s, d)
	})
}

func sendOne(ctx context.Context, s *pool) error {
	_, err := s.send(ctx, &swapsql.Statement{Text: "SELECT 1", Row: func(func(...any) error) error { return nil }})
	return err
}

// sendFor sends a statement for a caller who leaves after patience, and wants it to leave then.
func sendFor(t *testing.T, s *pool, patience time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	began := time.Now()
	err := sendOne(ctx, s)
	if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took != patience {
		t.Errorf("a caller that has %v is told %v after %v", patience, err, took)
	}
}

// TestLateStatementKeepsItsConnection: a caller leaves, and the statement ends soon after that.
func TestLateStatementKeepsItsConnection(t *testing.T) {
	onSlow(t, 2, lateFor, func(t *testing.T, s *pool, d *slowDatabase) {
		for range 3 {
			sendFor(t, s, 300*time.Millisecond)
			s.calls.Wait()
		}
		if d.opened.Load() != 1 || len(d.givenUp) != 0 {
			t.Errorf("%d connections were opened, and %d statements given up", d.opened.Load(), len(d.givenUp))
		}
	})
}

// TestQuickServerThatBecomesSlow: a statement on a quick server ends with its caller, and takes its
// connection along. The next one does not.
func TestQuickServerThatBecomesSlow(t *testing.T) {
	onSlow(t, 2, 1, func(t *testing.T, s *pool, d *slowDatabase) {
		for range quickAfter {
			steps.OK(t, sendOne(t.Context(), s))
		}
		d.takes.Store(int64(lateFor))
		for range 3 {
			sendFor(t, s, 300*time.Millisecond)
			s.calls.Wait()
		}
		if d.opened.Load() != 2 || len(d.givenUp) != 1 {
			t.Errorf("%d connections were opened, and %d statements given up", d.opened.Load(), len(d.givenUp))
		}
	})
}

// TestLateStatementsLeaveHalfOfThePool: those that do not end are given up, at once if they have half
// of the connections, and after a while otherwise.
func TestLateStatementsLeaveHalfOfThePool(t *testing.T) {
	for _, c := range []struct {
		conns int
		after []time.Duration // each statement was given up, from the first one on
	}{
		{1, []time.Duration{0, 0, 0}},
		{2, []time.Duration{0, 0, lateFor}},
		{3, []time.Duration{0, 0, lateFor}},
		{4, []time.Duration{0, lateFor, lateFor}},
		{0, []time.Duration{lateFor, lateFor, lateFor}}, // without a bound
	} {
		onSlow(t, c.conns, time.Hour, func(t *testing.T, s *pool, d *slowDatabase) {
			began := time.Now()
			for range c.after {
				sendFor(t, s, 1)
			}
			for i, want := range c.after {
				if after := (<-d.givenUp).Sub(began).Truncate(time.Millisecond); after != want {
					t.Errorf("of a pool of %d a statement, the %d. to be given up, was after %v; want %v", c.conns, i+1, after, want)
				}
			}
			s.calls.Wait()
			synctest.Wait()
			steps.Same(t, "statements are late after all have ended", s.late.Load(), 0)
		})
	}
}

// TestPoolWithoutAnswersOpensFewConnections: connections are opened, and no statement has an answer, as behind a pooler
// whose server is stuck. Each statement that is given up makes the line in front of that server longer.
func TestPoolWithoutAnswersOpensFewConnections(t *testing.T) {
	onSlow(t, 4, time.Hour, func(t *testing.T, s *pool, d *slowDatabase) {
		d.givenUp, d.heals = make(chan time.Time, 10000), make(chan struct{})
		var callers sync.WaitGroup
		for range 8 {
			callers.Go(func() {
				for err := error(context.Canceled); err != nil; {
					ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
					err = sendOne(ctx, s)
					cancel()
				}
			})
		}
		<-time.After(2 * time.Minute)
		before := d.opened.Load()
		<-time.After(time.Minute)
		during := d.opened.Load()
		if during-before > 4*8 {
			t.Errorf("in the third minute %d connections were opened", during-before)
		}
		close(d.heals)
		callers.Wait()
		if n := d.opened.Load() - during; n > 4 || s.unanswered.Load() != 0 {
			t.Errorf("once there were answers %d connections were opened", n)
		}
	})
}

// TestCloseEndsALateStatement: nobody waits for one.
func TestCloseEndsALateStatement(t *testing.T) {
	onSlow(t, 2, time.Hour, func(t *testing.T, s *pool, d *slowDatabase) {
		sendFor(t, s, 300*time.Millisecond)
		began := time.Now()
		d.endBackend()
		s.close()
		if took := time.Since(began); took != 0 || len(d.givenUp) != 1 {
			t.Errorf("Close took %v, and %d statements were given up", took, len(d.givenUp))
		}
	})
}

// TestStatementIsNotSentForNobody: its caller leaves while it waits for a connection.
func TestStatementIsNotSentForNobody(t *testing.T) {
	onSlow(t, 2, time.Hour, func(t *testing.T, s *pool, d *slowDatabase) {
		ctx, cancel := context.WithCancel(t.Context())
		d.connecting = cancel
		steps.Is(t, "a caller that has left is told", sendOne(ctx, s), context.Canceled)
		synctest.Wait()
		steps.Same(t, "statements were sent", d.sent.Load(), 0)
	})
}
