package sqllock

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"strings"
)

// fileRule runs f on the database file: on or onSame, which differ in what happens when the
// path leads to another file.
type fileRule = func(ctx context.Context, f func(d *database) error) error

// write waits for this process's turn to write, and runs f by rule. Without turns goroutines
// would meet at the file's write lock, which has no queue: they would sleep and try again.
func (s *sqlite) write(ctx context.Context, rule fileRule, f func(d *database) error) error {
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-s.turn }()
	return rule(ctx, f)
}

// on runs f on the file that the path leads to. If that changes meanwhile, what f did is
// lost with the old file, and f runs again on the new one.
func (s *sqlite) on(ctx context.Context, f func(d *database) error) error {
	for {
		d, err := s.database(ctx)
		if err != nil {
			return err
		}
		if err = s.once(ctx, d, f); !errors.Is(err, errMoved) {
			return err
		}
	}
}

// onSame runs f on the file that is open, and returns errMoved if the path leads to another.
func (s *sqlite) onSame(ctx context.Context, f func(d *database) error) error {
	if _, before := s.current(); before != nil {
		return errMoved
	}
	d, err := s.database(ctx)
	if err != nil {
		return err
	}
	return s.once(ctx, d, f)
}

// once runs f, and returns errMoved if the path led to another file then.
func (s *sqlite) once(ctx context.Context, d *database, f func(d *database) error) error {
	err := f(d)
	if err == nil || answer(err) {
		return err
	}
	if now, _ := s.current(); now != d || d.file.check() == errMoved {
		err = errMoved
	}
	if errors.Is(err, errMoved) {
		s.retire(d)
	}
	return err
}

// autocommit runs one statement as a transaction of its own, again if the database was busy.
// It returns whether the statement changed a row.
func (s *sqlite) autocommit(ctx context.Context, run func(ctx context.Context) (sql.Result, error),
) (changed bool, err error) {
	err = retry(ctx, func() error {
		r, err := run(s.statementContext(ctx))
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
	vote *vote // how a ballot is judged; nil if there is none
}

// transact runs f in a transaction and commits it. f may run again if the database was busy,
// so it begins anew each time. An error of f undoes the transaction; answers of the store are
// kept in variables of the caller.
func (s *sqlite) transact(ctx context.Context, what, key string, f func(t *txn) error) (effects, error) {
	return s.transactOn(ctx, s.on, what, key, f)
}

func (s *sqlite) transactOn(ctx context.Context, rule fileRule, what, key string, f func(t *txn) error,
) (effects, error) {
	var e effects
	err := s.write(ctx, rule, func(d *database) error {
		return retry(ctx, func() (err error) {
			e, err = s.attempt(ctx, d, key, f)
			return err
		})
	})
	if err != nil && key != "" {
		what = fmt.Sprintf("%s %q", what, key)
	}
	return e, s.fail(what, err)
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
	t := &txn{sqlite: s, database: d, ctx: ctx, tx: tx}
	t.now = readClock()
	if err = t.exec(t.statements.begin, t.now.clock, t.now.at, t.now.wall); err == nil {
		// Waiting for the lock took time. From here on nobody else writes.
		t.now = readClock()
		err = f(t)
	}
	if err != nil {
		if undo := tx.Rollback(); undo != nil && !errors.Is(undo, sql.ErrTxDone) && !noTransaction(undo) {
			// The connection may still be in the transaction, and hold the write
			// lock of all processes: it must not go back into the pool.
			_ = conn.Raw(func(any) error { return sqldriver.ErrBadConn })
		}
		return effects{}, err
	}
	if err = tx.Commit(); err != nil && !busy(err) {
		return effects{touched: []string{key}, strangers: true}, err
	}
	if err == nil {
		err = checkConn(d, conn)
	}
	return t.effects, err
}

func (t *txn) exec(stmt *sql.Stmt, args ...any) error {
	_, err := t.tx.StmtContext(t.ctx, stmt).ExecContext(t.ctx, args...)
	return err
}

// changes is exec, and returns how many rows it changed.
func (t *txn) changes(stmt *sql.Stmt, args ...any) (int64, error) {
	r, err := t.tx.StmtContext(t.ctx, stmt).ExecContext(t.ctx, args...)
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

// rows calls scan for each row.
func (t *txn) rows(scan func(*sql.Rows) error, stmt *sql.Stmt, args ...any) error {
	rows, err := t.tx.StmtContext(t.ctx, stmt).QueryContext(t.ctx, args...)
	if err != nil {
		return err
	}
	return each(rows, scan)
}

// errStop ends each early.
var errStop = errors.New("stop")

// each calls scan for each of rows, until it returns an error, and closes them.
func each(rows *sql.Rows, scan func(*sql.Rows) error) error {
	for rows.Next() {
		if err := scan(rows); err != nil {
			rows.Close()
			if err == errStop {
				return nil
			}
			return err
		}
	}
	if err := rows.Err(); err != nil {
		rows.Close()
		return err
	}
	return rows.Close()
}

// scanned says that a row could not be read because it is not of our making.
func scanned(key string, err error) error {
	if err != nil && (strings.HasPrefix(err.Error(), "sql: Scan error") || errors.As(err, new(cellError))) {
		return damaged(key, err)
	}
	return err
}
