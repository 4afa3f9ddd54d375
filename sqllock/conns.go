package sqllock

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
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
	use      *poolUse // nil if no call can succeed
	sessions swapsql.Sessions

	open  atomic.Bool   // the tables are there
	first chan struct{} // has room for one: the call that looks for them

	mu    sync.Mutex
	ended bool
	calls sync.WaitGroup // those under way, and statements that may go on without them

	inTime atomic.Int64 // how many statements in a row had their answer before the caller left, up to quickAfter
	late   atomic.Int64 // how many of them go on without their callers now
	// unanswered counts the statements that were given up since the last answer.
	unanswered atomic.Int64

	listening atomic.Pointer[context.CancelFunc] // ends the turn of Options.Listen
	// oneWriterAt is when the server was last seen to be the only writer, in ns since 1970.
	oneWriterAt atomic.Int64
}

func newPool(c config) conns {
	p := &pool{config: c, first: make(chan struct{}, 1)}
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
	if !was {
		p.use.end()
	}
}

// Run runs one statement once the tables are there, and sends it again while it has done nothing. It ends with the
// Backend.
func (p *pool) Run(caller context.Context, st *swapsql.Statement) (changed int64, err error) {
	if p.bad != nil {
		return 0, p.bad
	}
	if !p.begin() {
		return 0, driver.ErrClosed
	}
	defer p.calls.Done()
	ctx, cancel := context.WithCancel(caller)
	defer cancel()
	defer context.AfterFunc(p.ctx, cancel)()
	if err = p.ready(ctx); err == nil {
		changed, err = p.repeat(ctx, st)
	}
	return changed, p.explain(caller, err)
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
	// longestLate is how often that is doubled while no statement has an answer.
	longestLate = 3
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
	r, err := p.sessions.Send(ctx, conn, p.dialect.Dialect, st)
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
		swapsql.CloseConn(conn)
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
	p.calls.Go(func() {
		defer cancel()
		defer context.AfterFunc(p.ctx, cancel)()
		r, err := p.sessions.Send(late, conn, p.dialect.Dialect, &copied)
		if err != nil && late.Err() != nil {
			p.unanswered.Add(1)
		} else {
			p.unanswered.Store(0)
		}
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
		time.AfterFunc(p.patience(n), cancel)
		return 0, ctx.Err()
	}
}

// patience is for how long the last of n late statements goes on. A pooler lets clients wait for a server: a statement
// that is given up there keeps its place, the request to cancel it takes another one, and the statement may run in the
// end for nobody, and cost the pooler a connection to the server. While all statements end so, each process gives up
// less and less of them, or the pooler would have time for nothing else when the server is quick again.
func (p *pool) patience(n int64) time.Duration {
	s := p.db.Stats()
	most := int64(s.MaxOpenConnections)
	rounds := p.unanswered.Load() / (2 * max(2, most, int64(s.OpenConnections)))
	if rounds == 0 && most > 0 && n > most/2 {
		return 0
	}
	return lateFor << min(rounds, longestLate)
}

// undone reports that a statement did not happen and may be sent again at once. ErrBadConn says
// that nothing was sent; of lib/pq, which says it also when an answer is lost, see repeat.
func (p *pool) undone(err error) bool {
	return errors.Is(err, sqldriver.ErrBadConn) || p.dialect.Undone(err)
}

// moved reports whether a statement was refused because its server takes no writes: after a failover
// without a cut the connections of a pool lead to the old primary, which others may still serve.
func (p *pool) moved(err error) bool {
	return err != nil && slices.Contains(p.dialect.Moved, p.dialect.Code(err))
}

// mustClose reports whether the connection that err came over may not be used again.
func (p *pool) mustClose(err error) bool {
	if p.moved(err) {
		return true
	}
	code := p.dialect.Code(err)
	return slices.ContainsFunc(p.dialect.gone, func(class string) bool { return strings.HasPrefix(code, class) })
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
