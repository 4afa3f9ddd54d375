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
	"github.com/fencelock/fencelock/internal/swapsql"
)

// pool has the connections to PostgreSQL, MariaDB or MySQL. A connection is used for no longer than one
// statement, and no transaction stays open when a process stops in the middle of a step.
type pool struct {
	config
	tables   tables
	errors   *serverErrors
	use      *poolUse // nil if no call can succeed
	sessions swapsql.Sessions

	open  atomic.Bool   // the tables are there
	first chan struct{} // has room for one: the call that looks for them

	mu    sync.Mutex
	ended bool
	calls sync.WaitGroup // those under way

	statements sync.WaitGroup // those that may go on without their callers
	inTime     atomic.Int64   // how many in a row had their answer before the caller left, up to quickAfter
	late       atomic.Int64   // how many of them go on without their callers now

	listening atomic.Pointer[context.CancelFunc] // ends the turn of Options.Listen
	// oneWriterAt is when the server was last seen to be the only writer, in ns since 1970.
	oneWriterAt atomic.Int64
}

// tables makes and finds the tables of a kind of server.
type tables interface {
	// create runs the schema.
	create(ctx context.Context, schema string) error
	// schemas is a query for the schemas of the database that have tables of locks, or "".
	schemas() string
	// cluster names the kind of cluster with several writers that the server is in, or is empty.
	cluster(ctx context.Context) (string, error)
}

func newPool(c config, t tables, errs *serverErrors) *pool {
	p := &pool{config: c, tables: t, errors: errs, first: make(chan struct{}, 1)}
	if c.bad == nil {
		p.use = usePool(c.name, c.db)
	}
	return p
}

// listener is Options.Listen, or nil.
func (p *pool) listener() listen {
	if p.listen == nil {
		return nil
	}
	return func(ctx context.Context, channel string, heard func()) error {
		ctx, end := context.WithCancel(ctx)
		defer end()
		p.listening.Store(&end)
		return p.listen(ctx, channel, heard)
	}
}

// relisten begins Options.Listen anew: it may listen to a server that is not the primary any more.
func (p *pool) relisten() {
	if end := p.listening.Load(); end != nil {
		(*end)()
	}
}

// begin counts a call in, unless the Backend was closed.
func (p *pool) begin() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return false
	}
	p.calls.Add(1)
	return true
}

// close waits for the statements that are under way, whose context has ended.
func (p *pool) close() {
	p.mu.Lock()
	was := p.ended
	p.ended = true
	p.mu.Unlock()
	p.calls.Wait()
	p.statements.Wait()
	if !was {
		p.use.end()
	}
}

// Run runs one statement, and sends it again while it has done nothing.
func (p *pool) Run(caller context.Context, st *swapsql.Statement) (changed int64, err error) {
	err = p.call(caller, func(ctx context.Context) error {
		changed, err = p.repeat(ctx, st)
		return err
	})
	return changed, err
}

// call runs f with a context that also ends with the Backend, once the tables are there.
func (p *pool) call(caller context.Context, f func(ctx context.Context) error) error {
	if p.bad != nil {
		return p.bad
	}
	if !p.begin() {
		return driver.ErrClosed
	}
	defer p.calls.Done()
	ctx, cancel := context.WithCancel(caller)
	defer cancel()
	defer context.AfterFunc(p.ctx, cancel)()
	err := p.ready(ctx)
	if err == nil {
		err = f(ctx)
	}
	return p.explain(caller, err)
}

// repeat sends st until it has done something, or has found that there is nothing to do.
func (p *pool) repeat(ctx context.Context, st *swapsql.Statement) (changed int64, err error) {
	err = p.retry(ctx, func() error {
		if err := ctx.Err(); err != nil {
			return err
		}
		var err error
		changed, err = p.send(ctx, st)
		st.Resent = st.Resent || errors.Is(err, sqldriver.ErrBadConn)
		return err
	})
	if err = p.fail(st.What, st.Key, err); st.Resent {
		err = driverutil.Unsettled(err) // lib/pq says ErrBadConn also of a statement whose answer is lost
	}
	return changed, err
}

// explain lets a call that was cut short say so, whatever the driver made of it.
func (p *pool) explain(caller context.Context, err error) error {
	out := (*poolError)(nil)
	switch ended := driverutil.Ended(caller); {
	case err == nil, errors.Is(err, driver.ErrRefused):
	case ended != nil && errors.As(err, &out):
		out.err = ended
		return out
	case ended != nil:
		return p.use.starved(ended)
	case p.ctx.Err() != nil:
		return driver.ErrClosed
	}
	return err
}

// ready looks whether the tables are there, and of which format they are.
func (p *pool) ready(ctx context.Context) error {
	if p.open.Load() {
		return nil
	}
	select {
	case p.first <- struct{}{}:
		defer func() { <-p.first }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if p.open.Load() {
		return nil
	}
	if err := p.fail("open the tables", "", p.creating(ctx)); err != nil {
		return err
	}
	p.open.Store(true)
	return nil
}

// creating looks for the tables, and creates them if they are missing and shall be.
func (p *pool) creating(ctx context.Context) error {
	missing := p.inspect(ctx, true)
	switch {
	case errors.Is(missing, errNoFormat): // others may be creating them
	case !slices.Contains(p.errors.missing, p.errors.Code(missing)):
		return missing
	default:
		if err := p.inspect(ctx, false); err != nil {
			return err
		}
	}
	if !p.create {
		return missing
	}
	schema := p.errors.Schema(p.names.prefix)
	if err := p.retry(ctx, func() error { return p.tables.create(ctx, schema) }); err != nil {
		return p.fail("create the tables", "", err)
	}
	// A proxy may have a replica answer that has not heard of them yet.
	var err error
	for range 50 {
		err = p.inspect(ctx, true)
		if !errors.Is(err, errNoFormat) && !slices.Contains(p.errors.missing, p.errors.Code(err)) {
			break
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return err
}

// inspect reads which schemas have tables, and, if these are there, their format. It refuses to use one of two
// sets of tables.
func (p *pool) inspect(ctx context.Context, here bool) error {
	text := p.tables.schemas()
	if here {
		format := p.names.sql("SELECT value AS note, 'format' AS what, '' AS tables, '' AS way FROM fencelock_meta " +
			"WHERE name = 'format'")
		if text != "" {
			format += " UNION ALL (" + text + ")"
		}
		text = format
	}
	if text == "" {
		return nil
	}
	var format string
	var found tableSets
	st := &swapsql.Statement{Text: text, Begin: func() { format, found = "", tableSets{} }}
	st.Row = func(scan func(to ...any) error) error {
		var note, what, tables, way string
		err := scan(&note, &what, &tables, &way)
		if what == "format" {
			format = note
		} else {
			found.add(what == "here", note, tables, way)
		}
		return err
	}
	err := p.retry(ctx, func() error { return second(p.send(ctx, st)) })
	switch {
	case err != nil:
		return err
	case found.split():
		return permanent(fmt.Errorf("%s: %s To fix it: %s", p.name, found.why(), found.remedy()))
	case here:
		return p.checkFormat(format)
	}
	return nil
}

func second[T any](_ T, err error) error { return err }

// oneWriter asks the server once a minute: a cluster may change while it runs.
func (p *pool) oneWriter(ctx context.Context) error {
	if time.Since(time.Unix(0, p.oneWriterAt.Load())) < time.Minute {
		return nil
	}
	cluster, err := p.tables.cluster(ctx)
	if err != nil {
		return p.fail("read the settings of the cluster", "", err)
	}
	if cluster != "" {
		return permanent(fmt.Errorf("%s: this server is in a cluster with several writers (%s), and a transaction on "+
			"one of them does not exclude a transaction on another: lock with a Client, and check the token in the "+
			"transaction (package fence)", p.name, cluster))
	}
	p.oneWriterAt.Store(time.Now().UnixNano())
	return nil
}

// background runs f, which ends with the Backend.
func (p *pool) background(f func(ctx context.Context)) {
	if !p.begin() {
		return
	}
	go func() {
		defer p.calls.Done()
		f(p.ctx)
	}()
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
func (p *pool) send(ctx context.Context, st *swapsql.Statement) (int64, error) {
	conn, err := p.use.take(ctx, st.Keeps)
	if err != nil {
		return 0, err
	}
	if p.inTime.Load() < quickAfter {
		return p.sendSlow(ctx, conn, st)
	}
	r, err := p.sessions.Send(ctx, conn, p.errors.Dialect, st)
	if err != nil && ctx.Err() != nil {
		p.inTime.Store(0)
	}
	return p.take(conn, st, r, err)
}

// take gives conn back, and has st take what came over it.
func (p *pool) take(conn *sql.Conn, st *swapsql.Statement, r *swapsql.Result, err error) (int64, error) {
	p.giveBack(conn, err)
	if err != nil {
		return 0, err
	}
	return st.Take(r)
}

// giveBack gives conn back after a statement that has returned err.
func (p *pool) giveBack(conn *sql.Conn, err error) {
	if err != nil && p.mustClose(err) {
		closeConn(conn)
	}
	p.use.giveBack(conn)
	if p.moved(err) {
		p.relisten()
	}
}

// sendSlow sends a statement from a goroutine of its own, which costs up to a fifth of a quick one.
func (p *pool) sendSlow(ctx context.Context, conn *sql.Conn, st *swapsql.Statement) (int64, error) {
	late, cancel := context.WithCancel(context.WithoutCancel(ctx))
	type outcome struct {
		r   *swapsql.Result
		err error
	}
	done, left := make(chan outcome), make(chan struct{})
	copied := *st // the caller may use st again
	p.statements.Go(func() {
		defer cancel()
		defer context.AfterFunc(p.ctx, cancel)()
		r, err := p.sessions.Send(late, conn, p.errors.Dialect, &copied)
		select {
		case done <- outcome{r, err}:
		case <-left:
			p.giveBack(conn, err)
		}
	})
	select {
	case o := <-done:
		p.inTime.Add(1)
		return p.take(conn, st, o.r, o.err)
	case <-ctx.Done():
		close(left)
		p.inTime.Store(0)
		n := p.late.Add(1)
		context.AfterFunc(late, func() { p.late.Add(-1) })
		if most := int64(p.db.Stats().MaxOpenConnections); most > 0 && n > most/2 {
			cancel()
		} else {
			time.AfterFunc(lateFor, cancel)
		}
		return 0, ctx.Err()
	}
}

// undone reports that a statement did not happen and may be sent again at once. ErrBadConn says
// that nothing was sent; of lib/pq, which says it also when an answer is lost, see repeat.
func (p *pool) undone(err error) bool {
	return errors.Is(err, sqldriver.ErrBadConn) || p.errors.Undone(err)
}

// moved reports whether a statement was refused because its server takes no writes: after a failover
// without a cut the connections of a pool lead to the old primary, which others may still serve.
func (p *pool) moved(err error) bool {
	return err != nil && slices.Contains(p.errors.moved, p.errors.Code(err))
}

// mustClose reports whether the connection that err came over may not be used again.
func (p *pool) mustClose(err error) bool {
	if p.moved(err) {
		return true
	}
	code := p.errors.Code(err)
	return slices.ContainsFunc(p.errors.gone, func(class string) bool { return strings.HasPrefix(code, class) })
}

// retry calls f again while nothing has happened. Where the server takes no writes, it does so once
// for each connection of the pool, and once more over a new one.
func (p *pool) retry(ctx context.Context, f func() error) error {
	conns := -1
	again := func(err error) bool {
		if !p.moved(err) {
			return p.undone(err)
		}
		if conns < 0 {
			conns = p.db.Stats().OpenConnections + 2 // the one that was closed, and a new one
		}
		conns--
		return conns > 0
	}
	// Another client that was in the way is most likely done within the first wait.
	return retry(ctx, again, 500*time.Microsecond, 50*time.Millisecond, f)
}

func (p *pool) fail(what, key string, err error) error {
	return failure(p.name, what, key, err, func(err error) (string, verdict) {
		if slices.Contains(p.errors.moved, p.errors.Code(err)) {
			return "the server is a standby or read-only: connect to the primary", refused
		}
		code := p.errors.Code(err)
		for _, a := range p.errors.advice {
			if slices.Contains(strings.Fields(a.codes), code) {
				return p.names.sql(a.text), lasting
			}
		}
		if slices.Contains(p.errors.refused, code) || p.errors.Undone(err) ||
			code != "" && says(err, p.errors.pooler...) {
			return "", refused
		}
		return "", unknown
	})
}
