package sqllock

import (
	"cmp"
	"context"
	"database/sql"
	"errors"

	"github.com/fencelock/fencelock/driver"
)

// write waits for this process's turn to write, and runs f on the database file. Without turns
// goroutines would meet at the file's write lock, which has no queue: they would sleep and try
// again.
func (s *sqlite) write(ctx context.Context, sameFile bool, f func(d *database) error) error {
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-s.turn }()
	return s.on(ctx, sameFile, f)
}

// on runs f on the file that the path leads to. If that changes meanwhile, what f did is
// lost with the old file. f runs again on the new one then, or, with sameFile, on returns
// errMoved.
func (s *sqlite) on(ctx context.Context, sameFile bool, f func(d *database) error) error {
	for {
		if before, ok := s.current(); sameFile && before != nil && !ok {
			return errMoved
		}
		d, err := s.database(ctx)
		if err != nil {
			return err
		}
		if err = s.once(d, f); sameFile || !movedAway(err) {
			return err
		}
	}
}

// once runs f, and returns errMoved if the path led to another file then.
func (s *sqlite) once(d *database, f func(d *database) error) error {
	err := f(d)
	if err == nil || isAnswer(err) {
		return err
	}
	now, ok := s.current()
	if _, moved := d.file.stat(); now != d || !ok || moved == errMoved {
		err = errMoved
	}
	if movedAway(err) {
		s.retire(d)
	}
	return err
}

// autocommit runs one statement as a transaction of its own, again if the database was busy.
// It reports whether the statement changed a row.
func (s *sqlite) autocommit(ctx context.Context, d *database, name string, args func() []any,
) (changed bool, err error) {
	err = retryBusy(ctx, func() error {
		r, err := d.stmts[name].ExecContext(s.statementContext(ctx), args()...)
		if err != nil {
			return err
		}
		n, err := r.RowsAffected()
		changed = n > 0
		return err
	})
	return changed, err
}

// statementContext returns the context for statements, which take some microseconds. They
// need no interrupt where they wait neither for a connection nor inside SQLite. A context
// that cannot end saves a goroutine per statement: a third of a free lock's cost.
func (s *sqlite) statementContext(ctx context.Context) context.Context {
	if s.ignoresContext() || s.db.Stats().MaxOpenConnections > 0 {
		return ctx
	}
	return context.WithoutCancel(ctx)
}

// txn is a transaction that has the write lock.
type txn struct {
	*sqlite
	*database
	ctx context.Context
	tx  *sql.Tx
	now instant
	effects
}

// transact runs f in a transaction, and commits it also if f returns an answer such as
// driver.ErrGone. Any other error undoes the transaction. f may run again if the database was
// busy, so it begins anew each time. sameFile is as of on.
func (s *sqlite) transact(ctx context.Context, sameFile bool, what, key string, f func(t *txn) error) (effects, error) {
	var e effects
	err := s.write(ctx, sameFile, func(d *database) error {
		return retryBusy(ctx, func() (err error) {
			e, err = s.attempt(ctx, d, key, f)
			return err
		})
	})
	return e, s.fail(named(what, key), err)
}

// attempt runs f once. If the commit fails and may have happened, all waiters of the key
// read its line again.
func (s *sqlite) attempt(ctx context.Context, d *database, key string, f func(t *txn) error) (_ effects, err error) {
	if err := ctx.Err(); err != nil {
		return effects{}, err
	}
	ctx = s.statementContext(ctx)
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return effects{}, err
	}
	defer conn.Close()
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return effects{}, err
	}
	t := &txn{sqlite: s, database: d, ctx: ctx, tx: tx, now: readClock()}
	if _, err = t.exec("begin", t.now.clock, t.now.at, t.now.wall); err == nil {
		// Waiting for the lock took time. From here on nobody else writes.
		t.now = readClock()
		err = f(t)
	}
	if err != nil && !commits(err) {
		undo := tx.Rollback()
		if undo != nil && !errors.Is(undo, sql.ErrTxDone) && !says(undo, "no transaction is active") {
			// The connection may still be in the transaction, and hold the write
			// lock of all processes: it must not go back into the pool.
			closeConn(conn)
		}
		return effects{}, err
	}
	switch failed := tx.Commit(); {
	case busy(failed):
		return effects{}, failed
	case failed != nil:
		return effects{touched: []string{key}, strangers: true}, failed
	}
	return t.effects, cmp.Or(checkConn(d, conn), err)
}

// commits reports that an answer is known, and is true only if the transaction commits.
func commits(answer error) bool {
	return isAnswer(answer) && !errors.As(answer, new(*driver.PermanentError))
}

// exec runs the statement of that name, and returns how many rows it changed.
func (t *txn) exec(name string, args ...any) (changed int64, err error) {
	r, err := t.tx.StmtContext(t.ctx, t.stmts[name]).ExecContext(t.ctx, args...)
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

// query gives take each row of the statement of that name. key is for errors.
func (t *txn) query(key string, take func(r *row) error, name string, args ...any) error {
	rows, err := t.tx.StmtContext(t.ctx, t.stmts[name]).QueryContext(t.ctx, args...)
	if err != nil {
		return err
	}
	return eachRow(rows, key, take)
}
