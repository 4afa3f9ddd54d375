package sql_test

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/sqllock"
)

// TestOtherDrivers has the drivers of servers look like others that there are, and holds
// each dialect to what it owes to any driver.
func TestOtherDrivers(t *testing.T) {
	for about, k := range map[string]kind{"INSERT INTO fencelock_swap AS f": postgres, "INSERT INTO fencelock_swap": mariaDB} {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			on := func(set func(*mask), f func(t *testing.T, b driver.Backend, m *mask)) func(t *testing.T) {
				return func(t *testing.T) {
					m := k.store(t).mask(t, about)
					set(m)
					db := sql.OpenDB(m)
					t.Cleanup(func() { db.Close() })
					b := sqllock.New(db, k.dialect, &sqllock.Options{CreateTables: true})
					t.Cleanup(func() { b.Close() })
					use(t, b, "the first call makes the tables")
					m.asked.Store(0)
					m.sent.Store(0)
					f(t, b, m)
				}
			}
			prepares, skips, asIs := func(m *mask) { m.prepares = true }, func(m *mask) { m.skips = true }, func(*mask) {}
			t.Run("it only prepares", on(prepares, func(t *testing.T, b driver.Backend, m *mask) {
				m.takeTurns(t, b, map[bool]int32{true: 2}[k.dialect == sqllock.MySQL]) // which executes
			}))
			t.Run("it answers ErrSkip", on(skips, func(t *testing.T, b driver.Backend, m *mask) { m.takeTurns(t, b, 2) }))
			for broken := range int32(5) {
				name := fmt.Sprintf("%d connections of the pool are broken", broken)
				t.Run(name, on(asIs, func(t *testing.T, b driver.Backend, m *mask) { m.brokenPool(t, b, broken) }))
			}
			t.Run("a connection breaks before the answer", on(asIs, breaksBeforeTheAnswer))
		})
	}
}

// takeTurns has two claims hold one lock, on a driver whose connections database/sql has to
// prepare each question on.
func (m *mask) takeTurns(t *testing.T, b driver.Backend, asked int32) {
	first := hold(t, b, claim("k"))
	second := wait(t, b, claim("k"))
	leave(t, b, first)
	second = granted(t, b, second)
	if second.Token <= first.Token || second.Owner != "somebody" || second.Note != "a note" {
		t.Errorf("the second ticket is %+v, after one with token %d", second, first.Token)
	}
	leave(t, b, second)
	steps.Same(t, "it was asked", m.asked.Load(), asked)
}

// A driver that answers ErrBadConn says that nothing has happened, and the question goes
// to another connection.
func (m *mask) brokenPool(t *testing.T, b driver.Backend, broken int32) {
	m.broken.Store(broken)
	use(t, b, "k")
	steps.Same(t, "Enter was sent", m.sent.Load(), 1)
}

// One that says so when the answer is read has sent it, and that is not done twice.
func breaksBeforeTheAnswer(t *testing.T, b driver.Backend, m *mask) {
	m.breaks.Store(1)
	c := claim("k")
	_, err := b.Enter(soon(t), c)
	unsure(t, "Enter", err)
	steps.Same(t, "Enter was sent", m.sent.Load(), 1)
	m.breaks.Store(0)
	leave(t, b, hold(t, b, c))
}

// mask makes a driver look like another one for the questions that contain about. The
// others are passed on.
type mask struct {
	sqldriver.Connector // the driver behind it
	about               string

	prepares bool         // its connections cannot take a question without preparing it
	skips    bool         // they can, and answer that they do not
	broken   atomic.Int32 // so many connections turn out to be broken when they are asked
	breaks   atomic.Int32 // so many break after the question was sent

	asked atomic.Int32 // questions, without those that are prepared first
	sent  atomic.Int32 // those of them that reached the server
}

func (s *store) mask(t testing.TB, about string) *mask {
	t.Helper()
	d := stdlib.GetDefaultDriver().(sqldriver.DriverContext)
	if s.dialect == sqllock.MySQL {
		d = mysql.MySQLDriver{}
	}
	c, err := d.OpenConnector(s.dsn)
	must(t, err)
	return &mask{Connector: c, about: about}
}

// Connect makes a connection.
func (d *mask) Connect(ctx context.Context) (sqldriver.Conn, error) {
	inner, err := d.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	c := maskedConn{inner, d}
	if d.prepares {
		return struct {
			sqldriver.Conn
			sqldriver.ExecerContext
		}{inner, c}, nil
	}
	return c, nil
}

type maskedConn struct {
	sqldriver.Conn
	d *mask
}

func (c maskedConn) ExecContext(ctx context.Context, query string, args []sqldriver.NamedValue) (sqldriver.Result, error) {
	run := func() (sqldriver.Result, error) {
		return c.Conn.(sqldriver.ExecerContext).ExecContext(ctx, query, args)
	}
	if !strings.Contains(query, c.d.about) {
		return run()
	}
	if err := c.asks(); err != nil {
		return nil, err
	}
	r, err := run()
	if c.d.breaks.Add(-1) >= 0 {
		return nil, errors.New("the connection broke")
	}
	return r, err
}

// asks returns an error if a statement is not sent.
func (c maskedConn) asks() error {
	c.d.asked.Add(1)
	if c.d.skips {
		return sqldriver.ErrSkip
	}
	if c.d.broken.Add(-1) >= 0 {
		return sqldriver.ErrBadConn
	}
	c.d.sent.Add(1)
	return nil
}

func (c maskedConn) QueryContext(ctx context.Context, query string, args []sqldriver.NamedValue) (sqldriver.Rows, error) {
	q := c.Conn.(sqldriver.QueryerContext)
	if !strings.Contains(query, c.d.about) {
		return q.QueryContext(ctx, query, args)
	}
	if err := c.asks(); err != nil {
		return nil, err
	}
	inner, err := q.QueryContext(ctx, query, args)
	if err != nil {
		return nil, err
	}
	r := maskedRows{inner, c.d}
	if more, ok := inner.(sqldriver.RowsNextResultSet); ok {
		return struct {
			maskedRows
			results
		}{r, more}, nil
	}
	return r, nil
}

type maskedRows struct {
	sqldriver.Rows
	d *mask
}

// results are the methods that RowsNextResultSet has besides those of Rows.
type results interface {
	HasNextResultSet() bool
	NextResultSet() error
}

func (r maskedRows) Next(dest []sqldriver.Value) error {
	if r.d.breaks.Add(-1) >= 0 {
		return sqldriver.ErrBadConn
	}
	return r.Rows.Next(dest)
}

// TestPoolerThatMixesUpStatements has pgx prepare statements, as it does by default, behind
// a pooler that hands one connection of the server to several clients. Newer ones tell their
// statements apart.
func TestPoolerThatMixesUpStatements(t *testing.T) {
	only(t, postgres.with("PgBouncer"), func(t *testing.T, s *store) {
		use(t, s.polling(t), "k")
		through := func(config ...string) (failed error) {
			s.behind(t, testserver.PgBouncer(t, s.on, testserver.Config(append(config, "default_pool_size = 1")...)))
			for i := 0; failed == nil && i < 10; i++ {
				b := s.new(t, s.open(t), nil)
				var ticket driver.Ticket
				if ticket, failed = b.Enter(soon(t), claim(fmt.Sprint("k", i))); failed == nil {
					failed = b.Leave(soon(t), ticket, driver.Exit{})
				}
			}
			return failed
		}
		var mixing []string
		if testserver.PgBouncerKeepsStatements(t) {
			mixing = append(mixing, "max_prepared_statements = 0")
			well(t, "behind a pooler that keeps prepared statements", through("max_prepared_statements = 100"))
		}
		err := through(mixing...)
		says(t, "prepared statements behind a pooler", err, driver.ErrPermanent, "default_query_exec_mode=exec")
		leaveAll(t, s.backendOn(t, s.db))
	})
}

// TestBinaryLogNeedsNoMoreRights has a server that keeps a binary log, and a user who may
// do everything in one database and nothing beyond: he can create what is needed.
func TestBinaryLogNeedsNoMoreRights(t *testing.T) {
	t.Parallel()
	t.Run("MariaDB", func(t *testing.T) {
		s := ownServer(t, mariaDB, testserver.Config("log-bin=binlog", "server-id=1", "binlog_format=MIXED"))
		if !ask[bool](t, s, "SELECT @@log_bin AND NOT @@log_bin_trust_function_creators") {
			t.Fatal("the server keeps no binary log")
		}
		s.do(t, "CREATE USER ali IDENTIFIED BY 'open'")
		s.do(t, "GRANT ALL ON "+s.name+".* TO ali")
		s.dsn = s.as(t, "ali", "open")
		essentials(t, s.polling(t), s.polling(t))
		s.do(t, "SET GLOBAL binlog_format = 'STATEMENT'")
		_, err := s.polling(t).Enter(soon(t), claim("k"))
		says(t, "Enter that the binary log cannot take", err, driver.ErrPermanent, "binlog_format")
	})
}
