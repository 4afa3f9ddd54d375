package postgres_test

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/sqllock"
)

// otherDriver is pgx as other drivers may be. What it meets is said for the questions of an
// Enter, and the others are passed on.
type otherDriver struct {
	url    string
	skips  bool         // it does not take questions without preparing them first
	broken atomic.Int32 // so many connections turn out to be broken when they are asked
	breaks atomic.Int32 // so many break after the question was sent
	narrow bool         // rows have a column less
	asked  atomic.Int32 // questions, without those that are prepared first
	sent   atomic.Int32 // those of them that reached the server
}

func (a *otherDriver) Driver() sqldriver.Driver { return stdlib.GetDefaultDriver() }

func (a *otherDriver) Connect(ctx context.Context) (sqldriver.Conn, error) {
	c, err := stdlib.GetDefaultDriver().(sqldriver.DriverContext).OpenConnector(a.url)
	if err != nil {
		return nil, err
	}
	inner, err := c.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return otherConn{inner, a}, nil
}

type otherConn struct {
	sqldriver.Conn
	a *otherDriver
}

func (c otherConn) ExecContext(ctx context.Context, query string, args []sqldriver.NamedValue) (sqldriver.Result, error) {
	return c.Conn.(sqldriver.ExecerContext).ExecContext(ctx, query, args)
}

func (c otherConn) QueryContext(ctx context.Context, query string, args []sqldriver.NamedValue) (sqldriver.Rows, error) {
	q := c.Conn.(sqldriver.QueryerContext)
	if !strings.Contains(query, "fencelock_enter") {
		return q.QueryContext(ctx, query, args)
	}
	c.a.asked.Add(1)
	if c.a.skips {
		return nil, sqldriver.ErrSkip
	}
	if c.a.broken.Add(-1) >= 0 {
		return nil, sqldriver.ErrBadConn
	}
	c.a.sent.Add(1)
	rows, err := q.QueryContext(ctx, query, args)
	if err != nil {
		return nil, err
	}
	return otherRows{rows, c.a}, nil
}

type otherRows struct {
	sqldriver.Rows
	a *otherDriver
}

func (r otherRows) Columns() []string {
	all := r.Rows.Columns()
	if r.a.narrow {
		return all[1:]
	}
	return all
}

func (r otherRows) Next(dest []sqldriver.Value) error {
	if r.a.breaks.Add(-1) >= 0 {
		return sqldriver.ErrBadConn
	}
	return r.Rows.Next(dest)
}

// prepares is pgx as a driver that takes no question without preparing it first.
type prepares struct{ otherDriver }

func (p *prepares) Connect(ctx context.Context) (sqldriver.Conn, error) {
	c, err := p.otherDriver.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return struct {
		sqldriver.Conn
		sqldriver.ExecerContext
	}{c, c.(sqldriver.ExecerContext)}, nil
}

func backendOf(t *testing.T, c sqldriver.Connector) *sqllock.Backend {
	db := sql.OpenDB(c)
	t.Cleanup(func() { db.Close() })
	b := backend(t, db)
	enter(t, b, claim("the first step makes the tables"))
	leaveAll(t, b, "")
	return b
}

// TestDriversThatPrepareFirst goes through a line with drivers that are to be asked by way
// of database/sql. That is found out once.
func TestDriversThatPrepareFirst(t *testing.T) {
	t.Parallel()
	hidden := &prepares{otherDriver{url: newURL(t)}}
	skipping := &otherDriver{url: newURL(t), skips: true}
	for name, p := range map[string]struct {
		sqldriver.Connector
		asked *atomic.Int32
		want  int32
	}{
		"it has no QueryerContext": {hidden, &hidden.asked, 0},
		// database/sql asks it before it prepares. The first question of all was asked past
		// it, too.
		"it answers ErrSkip": {skipping, &skipping.asked, 4},
	} {
		t.Run(name, func(t *testing.T) {
			b := backendOf(t, p)
			first := hold(t, b, claim("k"))
			second := wait(t, b, claim("k"))
			leave(t, b, first)
			second = granted(t, b, second)
			if second.Token <= first.Token || second.Owner != "test" || second.Note != "a note" {
				t.Errorf("the second ticket is %+v, after one with token %d", second, first.Token)
			}
			leave(t, b, second)
			empty(t, b)
			if n := p.asked.Load(); n != p.want {
				t.Errorf("it was asked %d times for 3 claims; want %d", n, p.want)
			}
		})
	}
}

// TestBrokenConnectionsOfThePool: a driver that answers ErrBadConn says that nothing has
// happened, and the question goes to another connection. One that says so when the answer
// is read has sent it, and that is not done twice.
func TestBrokenConnectionsOfThePool(t *testing.T) {
	t.Parallel()
	for broken := range int32(5) {
		a := &otherDriver{url: newURL(t)}
		b := backendOf(t, a)
		a.sent.Store(0)
		a.broken.Store(broken)
		ticket, err := b.Enter(soon(t), claim("k"))
		if err != nil || !ticket.Granted || a.sent.Load() != 1 {
			t.Errorf("with %d broken connections Enter answered %+v, %v, and was sent %d times; want a grant, once", broken, ticket, err, a.sent.Load())
			continue
		}
		leave(t, b, ticket)
		empty(t, b)
	}

	a := &otherDriver{url: newURL(t)}
	b := backendOf(t, a)
	a.sent.Store(0)
	a.breaks.Store(1)
	c := claim("k")
	var p *driver.PermanentError
	if _, err := b.Enter(soon(t), c); err == nil || errors.As(err, &p) || driver.Gone(err) || a.sent.Load() != 1 {
		t.Errorf("Enter on a connection that broke before the answer: %v, and it was sent %d times; want an error that leaves it open, once", err, a.sent.Load())
	}
	leave(t, b, hold(t, b, c))
	empty(t, b)
}

// TestAnswerOfOtherColumns must be an error, not a panic, and nothing that is believed.
func TestAnswerOfOtherColumns(t *testing.T) {
	t.Parallel()
	a := &otherDriver{url: newURL(t)}
	b := backendOf(t, a)
	a.narrow = true
	_, err := b.Enter(soon(t), claim("k"))
	if err == nil || !strings.Contains(err.Error(), "columns") {
		t.Errorf("Enter with an answer of too few columns: %v", err)
	}
	leaveAll(t, b, "")
}
