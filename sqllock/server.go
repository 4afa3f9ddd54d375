package sqllock

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/driverutil"
)

// server is the store on PostgreSQL, MariaDB and MySQL. Each step is one call of a function
// or procedure of the schema: one statement, one transaction, one round trip. A connection
// of the pool is used for no longer than that, and no transaction stays open when a process
// stops in the middle of a step.
type server struct {
	config
	engine
	errors *serverErrors
	spare  *spare

	statements sync.WaitGroup // those that may go on without their callers
	inTime     atomic.Int64   // how many in a row had their answer before the caller left, up to quickAfter
	standbyAt  atomic.Int64   // when a standby answered, in ns since 1970; see leavesStandby
	late       atomic.Int64   // how many of them go on without their callers now
	// oneWriterAt is when the server was last seen to be the only writer, in ns since 1970.
	oneWriterAt atomic.Int64
}

func newServer(c config, e engine, errs *serverErrors) *steps {
	s := &server{config: c, engine: e, errors: errs, spare: newSpare(c)}
	return &steps{c, s, func(text string) any { return []byte(text) }}
}

// engine is what differs between servers.
type engine interface {
	// statement writes a call of a step. Its arguments are []byte, string, int64, bool or
	// nil.
	statement(step string, args []any) (text string, params []any)
	// createTables runs the schema.
	createTables(ctx context.Context) error
	leases(ts []driver.Ticket) []any
	renewAtOnce() int
	notifier() notifier
	prepare() string // the step that comes before hold, or ""
	// schemas is a query for the schemas of the database that have tables of locks, or "".
	schemas() string
	// relisten begins Options.Listen anew: it may listen to a server that is not the primary any more.
	relisten()
	hold(key, id string) (text string, params []any)
	// endsConnections says which setting of the server ended the connection that err came over, and what
	// to do, or is empty.
	endsConnections(ctx context.Context, err error) string
	// cluster names the kind of cluster with several writers that the server is in, or is empty.
	cluster(ctx context.Context) (string, error)
}

// serverErrors says what the errors of an engine mean.
type serverErrors struct {
	code    func(error) string
	missing []string // a table or a step is not there
	undone  []string // the server has rolled back a step because of what others did at the same time
	advice  []advice
	// moved says that another server must be asked: this one takes no writes, so the step did not
	// happen. gone begins the codes of all errors after which a connection is not used again.
	moved, gone []string
	// refused says that the server did not do the step, and may do it later. pooler are the texts of poolers
	// that say the same, which have no code of their own.
	refused, pooler []string
	// open says that a step which fails may leave a transaction open, which would keep a line
	// locked for as long as the pool keeps the connection. The connection is closed then.
	open bool
}

// advice is what to do about errors that would come again.
type advice struct{ codes, text string }

// ignoresContext: drivers of servers give up a statement when its context ends.
func (s *server) ignoresContext() bool { return false }

// close waits for the statements that are under way. Nobody calls send any more.
func (s *server) close() {
	s.statements.Wait()
	s.spare.close()
}

// starved says so of err, the end of a context, if the program has all connections.
func (s *server) starved(err error) error { return s.spare.starved(err) }

// notify does nothing: a step notifies others itself if the server can.
func (s *server) notify() {}

// ready looks whether the steps are there, and of which format the tables are.
func (s *server) ready(ctx context.Context) error {
	return s.fail("open the tables", "", s.creating(ctx, func() error { return s.inspect(ctx) }))
}

// creating calls f. If a table or a step was missing and shall be created, it calls f again.
func (s *server) creating(ctx context.Context, f func() error) error {
	missing := f()
	if !slices.Contains(s.errors.missing, s.errors.code(missing)) {
		return missing
	}
	if err := s.elsewhere(ctx); err != nil {
		return err
	}
	if !s.create {
		return missing
	}
	if err := s.retry(ctx, func() error { return s.createTables(ctx) }); err != nil {
		return s.fail("create the tables", "", err)
	}
	return f()
}

func (s *server) inspect(ctx context.Context) error {
	text, _ := s.statement("format", nil)
	if schemas := s.schemas(); schemas != "" {
		text = "SELECT note, 'format' AS what, '' AS mark, '' AS owner FROM (" + text + ") AS f UNION ALL (" +
			schemas + ")"
	}
	format, err := s.survey(ctx, text)
	if err != nil {
		return err
	}
	return s.checkFormat(format)
}

// elsewhere says so if the tables that are missing here are in another schema.
func (s *server) elsewhere(ctx context.Context) error {
	if s.schemas() == "" {
		return nil
	}
	_, err := s.survey(ctx, s.schemas())
	return err
}

// survey reads the format of the tables, and refuses to use one of two sets of them.
func (s *server) survey(ctx context.Context, text string) (format string, err error) {
	var found tableSets
	err = s.retry(ctx, func() error {
		format, found = "", tableSets{}
		return s.send(ctx, "format", "", text, nil, func(r *row) error {
			if r.what == "here" || r.what == "elsewhere" {
				found.add(r)
			} else {
				format = r.note
			}
			return nil
		})
	})
	if err == nil && found.split() {
		err = permanent(fmt.Errorf("%s: %s To fix it: %s", s.name, found.why(), found.remedy()))
	}
	return format, err
}

// oneWriter asks the server once a minute: a cluster may change while it runs.
func (s *server) oneWriter(ctx context.Context) error {
	if time.Since(time.Unix(0, s.oneWriterAt.Load())) < time.Minute {
		return nil
	}
	cluster, err := s.cluster(ctx)
	if err != nil {
		return s.fail("read the settings of the cluster", "", err)
	}
	if cluster != "" {
		return permanent(fmt.Errorf("%s: this server is in a cluster with several writers (%s), and a transaction on "+
			"one of them does not exclude a transaction on another: lock with a Client, and check the token in the "+
			"transaction (package fence)", s.name, cluster))
	}
	s.oneWriterAt.Store(time.Now().UnixNano())
	return nil
}

// later are the steps that tables of the same format may be without.
var later = []string{"record", "history", "enter_free", "leave_free"}

// call makes a step by one statement.
func (s *server) call(ctx context.Context, what, key string, into sink, step string, args ...any,
) (broke bool, err error) {
	text, params := s.statement(step, args)
	once := func() error {
		if err := ctx.Err(); err != nil {
			return err
		}
		into.begin()
		err := s.send(ctx, step, key, text, params, into.add)
		broke = broke || errors.Is(err, sqldriver.ErrBadConn)
		return err
	}
	attempt := func() error { return s.retry(ctx, once) }
	if slices.Contains(later, step) {
		err = s.creating(ctx, attempt)
	} else {
		err = attempt()
	}
	ends := s.endsConnections(ctx, err)
	if err = s.fail(what, key, err); ends != "" {
		err = permanent(fmt.Errorf("%w: %s", err, ends))
	}
	if broke || ends != "" {
		err = driverutil.Unsettled(err) // lib/pq says ErrBadConn also of a step whose answer is lost
	}
	return broke, err
}

const (
	// lateFor is how long a statement goes on after its caller has left.
	lateFor = time.Second
	// quickAfter is how many answers in a row must be in time before a server is taken for quick.
	quickAfter = 1000
)

// send sends one statement, and returns soon after ctx ends. To give the statement up costs its
// connection: a new one is slow at first, and slower than its callers wait on a server that is busy
// with many of them. So a statement goes on for a while after its caller, unless the server is quick.
// Half of the pool is left to others: a connection may be dead, or a line locked for long.
func (s *server) send(ctx context.Context, step, key, text string, params []any, take func(r *row) error) error {
	conn, err := s.spare.take(ctx, step)
	if err != nil {
		return err
	}
	if s.inTime.Load() < quickAfter {
		return s.sendSlow(ctx, conn, key, text, params, take)
	}
	err = s.query(ctx, conn, key, text, params, take)
	if err != nil && ctx.Err() != nil {
		s.inTime.Store(0)
	}
	return err
}

// sendSlow sends a statement from a goroutine of its own, which costs up to a fifth of a quick one.
func (s *server) sendSlow(ctx context.Context, conn *sql.Conn, key, text string, params []any, take func(r *row) error,
) error {
	late, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var rows []row
	done := make(chan error, 1)
	s.statements.Go(func() {
		defer cancel()
		defer context.AfterFunc(s.ctx, cancel)()
		done <- s.query(late, conn, key, text, params, func(r *row) error {
			rows = append(rows, *r)
			return nil
		})
	})
	select {
	case err := <-done:
		s.inTime.Add(1)
		for i := range rows {
			if err := take(&rows[i]); err != nil {
				return err
			}
		}
		return err
	case <-ctx.Done():
		s.inTime.Store(0)
		n := s.late.Add(1)
		context.AfterFunc(late, func() { s.late.Add(-1) })
		if most := int64(s.db.Stats().MaxOpenConnections); most > 0 && n > most/2 {
			cancel()
		} else {
			time.AfterFunc(lateFor, cancel)
		}
		return ctx.Err()
	}
}

// query sends one statement over conn, and gives conn back.
func (s *server) query(ctx context.Context, conn *sql.Conn, key, text string, params []any, take func(r *row) error,
) (err error) {
	granted := false
	defer func() {
		broken := err != nil && s.errors.code(err) == ""
		if err != nil && s.mustClose(err) {
			broken = true
			closeConn(conn)
		}
		s.spare.giveBack(conn, granted, broken)
		if s.moved(err) {
			s.relisten()
		}
	}()
	return queryRows(ctx, conn, text, params, func(rows results) error {
		err := eachRow(rows, key, func(r *row) error {
			granted = granted || r.grants()
			return take(r)
		})
		if errors.Is(err, sqldriver.ErrBadConn) {
			// It was sent, so it must not be taken for undone.
			err = fmt.Errorf("the connection broke before the answer was there: %v", err)
		}
		return err
	})
}

// undone reports that a step did not happen and may be sent again at once. ErrBadConn says
// that nothing was sent; of lib/pq, which says it also when an answer is lost, see outcome.
func (s *server) undone(err error) bool {
	return errors.Is(err, sqldriver.ErrBadConn) || slices.Contains(s.errors.undone, s.errors.code(err))
}

// moved reports whether a step was refused because its server takes no writes: after a failover
// without a cut the connections of a pool lead to the old primary, which others may still serve.
func (s *server) moved(err error) bool {
	if errors.As(err, new(standbyError)) {
		return s.leavesStandby()
	}
	return err != nil && slices.Contains(s.errors.moved, s.errors.code(err))
}

// leavesStandby reports whether a connection is given up because a standby has answered a read: for a
// second, as after a failover, and then not for ten, because a pooler that sends reads to standbys
// would do the same on a new one.
func (s *server) leavesStandby() bool {
	now, at := time.Now().UnixNano(), s.standbyAt.Load()
	if at == 0 || now-at > int64(10*time.Second) {
		s.standbyAt.Store(now)
		return true
	}
	return now-at < int64(time.Second)
}

// mustClose reports whether the connection that err came over may not be used again.
func (s *server) mustClose(err error) bool {
	if s.errors.open && !s.undone(err) || s.moved(err) {
		return true
	}
	code := s.errors.code(err)
	return slices.ContainsFunc(s.errors.gone, func(class string) bool { return strings.HasPrefix(code, class) })
}

// retry calls f again while nothing has happened. Where the server takes no writes, it does so once
// for each connection of the pool, and once more over a new one.
func (s *server) retry(ctx context.Context, f func() error) error {
	conns := -1
	again := func(err error) bool {
		if !s.moved(err) {
			return s.undone(err)
		}
		if conns < 0 {
			conns = s.db.Stats().OpenConnections + 2 // the one that was closed, and a new one
		}
		conns--
		return conns > 0
	}
	// Whoever was in the way is most likely done within the first wait.
	return retry(ctx, again, 500*time.Microsecond, 50*time.Millisecond, f)
}

func (s *server) fail(what, key string, err error) error {
	return failure(s.name, what, key, err, func(err error) (string, verdict) {
		if slices.Contains(s.errors.moved, s.errors.code(err)) {
			return "the server is a standby or read-only: connect to the primary", refused
		}
		code := s.errors.code(err)
		for _, a := range s.errors.advice {
			if slices.Contains(strings.Fields(a.codes), code) {
				return s.names.sql(a.text), lasting
			}
		}
		if slices.Contains(s.errors.refused, code) || slices.Contains(s.errors.undone, code) ||
			code != "" && says(err, s.errors.pooler...) {
			return "", refused
		}
		return "", unknown
	})
}
