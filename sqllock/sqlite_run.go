package sqllock

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
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
	switch d := s.current(); {
	case s.ctx.Err() != nil:
		s.running.RUnlock()
		return 0, driver.ErrClosed
	case d != nil && d.timeout == 0:
		changed, err = s.run(ctx, st)
		s.running.RUnlock()
	default:
		changed, err = s.runBehind(ctx, st)
	}
	if err != nil {
		return 0, s.fail(st.What, st.Key, err)
	}
	return changed, nil
}

// runBehind runs st on a goroutine, and unlocks s.running. Once it has returned, no function of st is called.
func (s *sqlite) runBehind(ctx context.Context, st *swapsql.Statement) (int64, error) {
	late, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(s.ctx, cancel)
	mine, left := leave(st)
	var changed int64
	done := make(chan error, 1)
	go func() {
		defer s.running.RUnlock()
		defer cancel()
		defer stop()
		n, err := s.run(late, mine)
		changed = n
		done <- err
	}()
	var err error
	select {
	case err = <-done:
	case <-late.Done():
		t := time.NewTimer(endsWithin)
		defer t.Stop()
		select {
		case err = <-done: // most statements end with their context, and say more
		case <-t.C:
			left()
			return 0, cmp.Or(ctx.Err(), error(driver.ErrClosed))
		}
	}
	st.Opening, st.Clock = mine.Opening, mine.Clock
	return changed, err
}

// endsWithin is how long a statement that ends with its context may take to say why it had no success.
const endsWithin = 100 * time.Millisecond

// leave returns a copy of st whose functions do nothing once left was called.
func leave(st *swapsql.Statement) (mine *swapsql.Statement, left func()) {
	c := *st
	var mu sync.Mutex
	gone := false
	if st.Begin != nil {
		c.Begin = func() {
			mu.Lock()
			defer mu.Unlock()
			if !gone {
				st.Opening = c.Opening
				st.Begin()
			}
		}
	}
	if st.Row != nil {
		c.Row = func(scan func(to ...any) error) error {
			mu.Lock()
			defer mu.Unlock()
			if gone {
				return nil
			}
			return st.Row(scan)
		}
	}
	return &c, func() {
		mu.Lock()
		defer mu.Unlock()
		gone = true
	}
}

// run waits for this process's turn, and runs st. Without turns goroutines would meet at the file's write lock,
// which has no queue: they would sleep and try again.
func (s *sqlite) run(ctx context.Context, st *swapsql.Statement) (int64, error) {
	turn := s.reading
	if st.Writes {
		turn = s.turn
	}
	select {
	case turn <- struct{}{}:
	case <-ctx.Done():
		return 0, &outOfTimeError{last: errNoTurn, ended: ctx.Err()}
	case <-s.ctx.Done():
		return 0, driver.ErrClosed
	}
	defer func() { <-turn }()
	return s.on(ctx, st)
}

// on runs st on the file that the path leads to. If that changes meanwhile, what st did is lost with the old
// file, and st runs again on the new one.
func (s *sqlite) on(ctx context.Context, st *swapsql.Statement) (changed int64, err error) {
	for {
		d, err := s.database(ctx)
		if err != nil {
			return 0, err
		}
		st.Opening = d.number
		if st.Only != 0 && st.Only != d.number {
			return 0, nil
		}
		err = s.retryBusy(ctx, func() (err error) {
			changed, err = s.once(ctx, d, st)
			return err
		})
		if err == nil && st.Tells && changed > 0 {
			notifyFile(d.file.path)
		}
		if err = s.moved(d, err); !movedAway(err) {
			return changed, err
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
func (s *sqlite) once(ctx context.Context, d *database, st *swapsql.Statement) (changed int64, err error) {
	p, err := d.prepared(ctx, s.db, st.Text)
	if err != nil {
		return 0, err
	}
	if !s.bounded() && len(st.Then) == 0 {
		if changed, err = p.run(d.statementContext(ctx), nil, s.db, d.now(), st); err == nil {
			err = s.check(ctx, d)
		}
		return changed, err
	}
	err = s.inTransaction(ctx, d, func(ctx context.Context, tx *sql.Tx) error {
		if changed, err = p.run(ctx, tx, tx, d.now(), st); err != nil || changed == 0 {
			return err
		}
		for _, next := range st.Then {
			p, err := d.prepared(ctx, nil, next.Text)
			if err == nil {
				_, err = p.run(ctx, tx, tx, d.now(), next)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	return changed, err
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
		if err = tx.Commit(); err == nil {
			return d.file.checkConn(conn)
		}
		closeConn(conn) // it may still be in the transaction
		return err
	}
	undo := tx.Rollback()
	if undo != nil && !errors.Is(undo, sql.ErrTxDone) && !says(undo, "no transaction is active") {
		// The connection may still be in the transaction, and hold the write
		// lock of all processes: it must not go back into the pool.
		closeConn(conn)
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

// execer is a *sql.DB or a *sql.Tx.
type execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// run runs p for st, in tx if that is not nil.
func (p *prepared) run(ctx context.Context, tx *sql.Tx, db execer, now int64, st *swapsql.Statement) (int64, error) {
	args := st.Args
	if p.clock >= 0 {
		args = make([]any, 0, len(st.Args)+1)
		args = append(append(append(args, st.Args[:p.clock]...), now), st.Args[p.clock:]...)
	}
	st.Clock = now
	stmt := p.stmt
	if stmt != nil && tx != nil {
		stmt = tx.StmtContext(ctx, stmt)
	}
	if st.Row == nil {
		var res sql.Result
		var err error
		if stmt != nil {
			res, err = stmt.ExecContext(ctx, args...)
		} else {
			res, err = db.ExecContext(ctx, p.text, args...)
		}
		if err != nil {
			return 0, err
		}
		return res.RowsAffected()
	}
	if st.Begin != nil {
		st.Begin()
	}
	var rows *sql.Rows
	var err error
	if stmt != nil {
		rows, err = stmt.QueryContext(ctx, args...)
	} else {
		rows, err = db.QueryContext(ctx, p.text, args...)
	}
	if err != nil {
		return 0, err
	}
	return eachOf(rows, st)
}

// eachOf gives st each row, and closes rows.
func eachOf(rows *sql.Rows, st *swapsql.Statement) (n int64, err error) {
	defer rows.Close()
	for ; rows.Next(); n++ {
		err := st.Row(rows.Scan)
		if err != nil && strings.HasPrefix(err.Error(), "sql: Scan error") {
			err = damaged(st.Key, err)
		}
		if err != nil {
			return 0, err
		}
	}
	return n, cmp.Or(rows.Err(), rows.Close())
}
