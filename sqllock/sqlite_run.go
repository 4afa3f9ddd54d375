package sqllock

import (
	"cmp"
	"context"
	"database/sql"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/swapsql"
)

// Run runs st in a transaction of its own, on the file that the path leads to. It returns soon after ctx ends.
// Where a statement may wait inside a driver that does not hear its context, it runs on a goroutine of its own
// and goes on in the background. Otherwise it runs on the caller's, because an SQL engine written in Go wants a
// deep stack: growing a new one for each call costs a third of the call.
func (s *sqlite) Run(ctx context.Context, st *swapsql.Statement) (changed int64, err error) {
	if s.bad != nil {
		return 0, s.bad
	}
	s.running.RLock()
	var r *swapsql.Result
	switch d := s.current(); {
	case s.ctx.Err() != nil:
		s.running.RUnlock()
		return 0, driver.ErrClosed
	case d != nil && d.timeout == 0:
		r, err = s.run(ctx, st)
		s.running.RUnlock()
	default:
		r, err = s.runBehind(ctx, st)
	}
	if err == nil {
		changed, err = st.Take(r)
	}
	return changed, s.fail(st.What, st.Key, err)
}

// runBehind runs st on a goroutine, and unlocks s.running.
func (s *sqlite) runBehind(ctx context.Context, st *swapsql.Statement) (r *swapsql.Result, err error) {
	late, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(s.ctx, cancel)
	mine := *st // the caller may use st again
	var result *swapsql.Result
	done := make(chan error, 1)
	go func() {
		defer s.running.RUnlock()
		defer cancel()
		defer stop()
		var err error
		result, err = s.run(late, &mine)
		done <- err
	}()
	select {
	case err = <-done:
	case <-late.Done():
		t := time.NewTimer(endsWithin)
		defer t.Stop()
		select {
		case err = <-done: // most statements end with their context, and say more
		case <-t.C:
			return nil, cmp.Or(ctx.Err(), error(driver.ErrClosed))
		}
	}
	st.Opening, st.Clock = mine.Opening, mine.Clock
	return result, err
}

// endsWithin is how long a statement that ends with its context may take to say why it had no success.
const endsWithin = 100 * time.Millisecond

// run waits for this process's turn, and runs st. Without turns goroutines would meet at the file's write lock,
// which has no queue: they would sleep and try again.
func (s *sqlite) run(ctx context.Context, st *swapsql.Statement) (*swapsql.Result, error) {
	turn := s.reading
	if st.Writes {
		turn = s.turn
	}
	select {
	case turn <- struct{}{}:
	case <-ctx.Done():
		return nil, &outOfTimeError{last: errNoTurn, ended: ctx.Err()}
	case <-s.ctx.Done():
		return nil, driver.ErrClosed
	}
	defer func() { <-turn }()
	return s.on(ctx, st)
}

// on runs st on the file that the path leads to. If that changes meanwhile, what st did is lost with the old
// file, and st runs again on the new one.
func (s *sqlite) on(ctx context.Context, st *swapsql.Statement) (r *swapsql.Result, err error) {
	for {
		d, err := s.database(ctx)
		if err != nil {
			return nil, err
		}
		st.Opening = d.number
		if st.Only != 0 && st.Only != d.number {
			return &swapsql.Result{}, nil
		}
		err = s.retryBusy(ctx, func() (err error) {
			r, err = s.once(ctx, d, st)
			return err
		})
		if err == nil && st.Tells && r.Changed > 0 {
			notifyFile(d.file.path)
		}
		if err = s.moved(d, err); !movedAway(err) {
			return r, err
		}
	}
}

// retryBusy calls f until the database is not busy, or ctx ends. A transaction takes some
// tens of µs, so does the first wait; transactions of others may take longer.
func (s *sqlite) retryBusy(ctx context.Context, f func() error) error {
	err := f()
	if !busy(err) {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	select {
	case <-time.After(rand.N(100 * time.Microsecond)):
	case <-ctx.Done():
		return &outOfTimeError{last: err, ended: ctx.Err()}
	}
	return retry(ctx, busy, 100*time.Microsecond, 4*time.Millisecond, f)
}

// once runs st once, in a transaction of its own.
func (s *sqlite) once(ctx context.Context, d *database, st *swapsql.Statement) (r *swapsql.Result, err error) {
	p, err := d.prepared(ctx, s.db, st.Text)
	if err != nil {
		return nil, err
	}
	if !s.bounded() && len(st.Then) == 0 {
		if r, err = p.send(d.statementContext(ctx), s.db, d.now(), st); err == nil {
			err = s.check(ctx, d)
		}
		return r, err
	}
	err = s.inTransaction(ctx, d, func(ctx context.Context, tx *sql.Tx) error {
		if r, err = p.send(ctx, tx, d.now(), st); err != nil || r.Changed == 0 {
			return err
		}
		for _, next := range st.Then {
			p, err := d.prepared(ctx, nil, next.Text)
			if err == nil {
				_, err = p.send(ctx, tx, d.now(), next)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	return r, err
}

// bounded reports whether a statement may wait until the program gives a connection back.
func (s *sqlite) bounded() bool { return s.db.Stats().MaxOpenConnections > 0 }

// inTransaction waits for a connection until ctx ends, and runs f in a transaction.
func (s *sqlite) inTransaction(ctx context.Context, d *database, f func(context.Context, *sql.Tx) error) error {
	conn, err := s.db.Conn(ctx)
	if ended := ctx.Err(); err != nil && ended != nil {
		return &outOfTimeError{last: errAllInUse, ended: ended}
	}
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx = d.statementContext(ctx)
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err = f(ctx, tx); err == nil {
		err = tx.Commit()
	}
	if err == nil {
		return d.file.checkConn(conn)
	}
	if tx.Rollback() != nil {
		// The connection may still be in the transaction, and hold the write
		// lock of all processes: it must not go back into the pool.
		swapsql.CloseConn(conn)
	}
	return err
}

// statementContext returns the context for a statement that has its connection. It takes some
// microseconds, and needs no interrupt where it does not wait inside SQLite: whether a statement
// that was interrupted did its work is unknown. A context that cannot end also saves a goroutine per
// statement: a sixth of a free lock's cost.
func (d *database) statementContext(ctx context.Context) context.Context {
	if d.timeout > 0 {
		return ctx
	}
	return context.WithoutCancel(ctx)
}

// moved returns errMoved if st failed because the path leads to another file, and ends d then.
func (s *sqlite) moved(d *database, err error) error {
	if err == nil {
		return nil
	}
	if _, moved := d.file.stat(); d.ended.Load() || movedAway(moved) {
		err = errMoved
	}
	if movedAway(err) && d.end() {
		s.lost.Add(1)
	}
	return err
}

// prepared is a statement that database/sql prepares for each connection, or one that is sent as it is.
type prepared struct {
	stmt  *sql.Stmt
	text  string
	clock int // which argument is the time, or -1
}

// mostPrepared bounds how many statements are prepared: their texts depend on how many claims they name.
const mostPrepared = 100

// prepared prepares a statement. Without db it returns one that is prepared already, or is sent as it is.
func (d *database) prepared(ctx context.Context, db *sql.DB, text string) (*prepared, error) {
	d.mu.RLock()
	p, n := d.statements[text], len(d.statements)
	d.mu.RUnlock()
	if p != nil {
		return p, nil
	}
	p = &prepared{}
	p.text, p.clock = swapsql.Clocked(text)
	if db == nil || n >= mostPrepared {
		return p, nil
	}
	var err error
	if p.stmt, err = db.PrepareContext(ctx, p.text); err != nil {
		if ended := ctx.Err(); ended != nil {
			err = &outOfTimeError{last: errAllInUse, ended: ended} // nothing was done
		}
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if other := d.statements[text]; other != nil || d.ended.Load() {
		p.stmt.Close()
		p.stmt = nil
		return cmp.Or(other, p), nil
	}
	d.statements[text] = p
	return p, nil
}

// over runs a prepared statement.
type over struct{ *sql.Stmt }

func (o over) ExecContext(ctx context.Context, _ string, args ...any) (sql.Result, error) {
	return o.Stmt.ExecContext(ctx, args...)
}

func (o over) QueryContext(ctx context.Context, _ string, args ...any) (*sql.Rows, error) {
	return o.Stmt.QueryContext(ctx, args...)
}

// send runs p for st on the pool, or in a transaction.
func (p *prepared) send(ctx context.Context, on swapsql.Execer, now int64, st *swapsql.Statement) (*swapsql.Result,
	error) {
	args := st.Args
	if p.clock >= 0 {
		args = slices.Concat(args[:p.clock], []any{now}, args[p.clock:])
	}
	st.Clock = now
	switch tx, ok := on.(*sql.Tx); {
	case p.stmt != nil && ok:
		on = over{tx.StmtContext(ctx, p.stmt)}
	case p.stmt != nil:
		on = over{p.stmt}
	}
	return st.Send(ctx, on, p.text, args)
}
