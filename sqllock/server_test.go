package sqllock

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// slowDatabase is one whose statements take a time, unless they are given up.
type slowDatabase struct {
	takes      atomic.Int64 // ns
	opened     atomic.Int64
	givenUp    chan time.Time // when each was
	endBackend func()
}

func (d *slowDatabase) Connect(context.Context) (sqldriver.Conn, error) {
	d.opened.Add(1)
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
	select {
	case <-time.After(time.Duration(c.d.takes.Load())):
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

// onSlow runs f with a store on a pool of one connection.
func onSlow(t *testing.T, takes time.Duration, f func(t *testing.T, s *server, d *slowDatabase)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d := &slowDatabase{givenUp: make(chan time.Time, 10)}
		d.takes.Store(int64(takes))
		db := sql.OpenDB(d)
		defer db.Close()
		db.SetMaxOpenConns(1)
		ctx, stop := context.WithCancel(t.Context())
		d.endBackend = stop
		s := newServer(config{ctx: ctx, name: "slow", db: db}, &postgres{}, &postgresErrors).store.(*server)
		defer s.close()
		defer stop()
		f(t, s, d)
	})
}

func sendOne(ctx context.Context, s *server) error {
	return s.send(ctx, "k", "SELECT 1", nil, func(*row) error { return nil })
}

// sendFor sends a statement for a caller who leaves after patience, and wants it to leave then.
func sendFor(t *testing.T, s *server, patience time.Duration) {
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
	onSlow(t, lateFor, func(t *testing.T, s *server, d *slowDatabase) {
		sendFor(t, s, 300*time.Millisecond)
		began := time.Now()
		if err := sendOne(t.Context(), s); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took != 2*lateFor-300*time.Millisecond || d.opened.Load() != 1 {
			t.Errorf("the next statement was over after %v, and there were %d connections", took, d.opened.Load())
		}
	})
}

// TestQuickServerThatBecomesSlow: a statement on a quick server ends with its caller, and takes its
// connection along. The next one does not.
func TestQuickServerThatBecomesSlow(t *testing.T) {
	onSlow(t, 0, func(t *testing.T, s *server, d *slowDatabase) {
		send := func() {
			t.Helper()
			if err := sendOne(t.Context(), s); err != nil {
				t.Error(err)
			}
		}
		for range quickAfter {
			send()
		}
		d.takes.Store(int64(lateFor))
		sendFor(t, s, 300*time.Millisecond)
		sendFor(t, s, 300*time.Millisecond)
		send()
		if d.opened.Load() != 2 || len(d.givenUp) != 1 {
			t.Errorf("%d connections were opened, and %d statements given up", d.opened.Load(), len(d.givenUp))
		}
	})
}

// TestLateStatementIsGivenUp: one that does not end keeps its connection from others for a while.
func TestLateStatementIsGivenUp(t *testing.T) {
	onSlow(t, time.Hour, func(t *testing.T, s *server, d *slowDatabase) {
		began := time.Now()
		sendFor(t, s, 300*time.Millisecond)
		sendFor(t, s, lateFor-time.Millisecond) // waits for the connection
		sendFor(t, s, time.Second)
		after := (<-d.givenUp).Sub(began)
		if after != 300*time.Millisecond+lateFor || d.opened.Load() != 2 {
			t.Errorf("the statement was given up after %v, and there were %d connections", after, d.opened.Load())
		}
	})
}

// TestCloseEndsALateStatement: nobody waits for one.
func TestCloseEndsALateStatement(t *testing.T) {
	onSlow(t, time.Hour, func(t *testing.T, s *server, d *slowDatabase) {
		sendFor(t, s, 300*time.Millisecond)
		began := time.Now()
		d.endBackend()
		s.close()
		if took := time.Since(began); took != 0 || len(d.givenUp) != 1 {
			t.Errorf("Close took %v, and %d statements were given up", took, len(d.givenUp))
		}
	})
}
