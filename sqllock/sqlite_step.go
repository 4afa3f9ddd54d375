package sqllock

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"strings"
)

// take waits for this process's turn to write. Without it goroutines would meet at
// the file's write lock, which has no queue: they would sleep and try again.
func (s *sqlite) take(ctx context.Context) error {
	select {
	case s.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *sqlite) give() { <-s.turn }

// alone runs a statement that writes, as a transaction by itself. It returns whether
// it has changed anything; args is called for each attempt.
func (s *sqlite) alone(ctx context.Context, stmt *sql.Stmt, args func() []any) (changed bool, err error) {
	if err := s.take(ctx); err != nil {
		return false, err
	}
	defer s.give()
	err = retry(ctx, func() error {
		r, err := stmt.ExecContext(s.brief(ctx), args()...)
		if err != nil {
			return err
		}
		n, err := r.RowsAffected()
		changed = n > 0
		return err
	})
	return changed, err
}

// brief returns the context for work that takes SQLite only a moment. Where it
// cannot wait for a connection nor for a lock inside SQLite, it need not be
// interrupted, and a context that cannot end saves it a goroutine per statement, which
// is a third of a free lock's cost.
func (s *sqlite) brief(ctx context.Context) context.Context {
	if s.deaf() || s.db.Stats().MaxOpenConnections > 0 {
		return ctx
	}
	return context.WithoutCancel(ctx)
}

// txn is a step under way: a transaction that has the write lock.
type txn struct {
	*sqlite
	ctx context.Context
	tx  *sql.Tx
	now instant
	effects
	vote *vote // how a ballot is judged; nil if there is none
}

// step runs f in a transaction and commits what it did. f may run again, if the
// database was busy, so it begins anew each time; what it returns is a failure, and
// undoes everything. Answers are kept in variables of the caller.
func (s *sqlite) step(ctx context.Context, what, key string, f func(t *txn) error) (effects, error) {
	if err := s.take(ctx); err != nil {
		return effects{}, err
	}
	defer s.give()
	var e effects
	err := retry(ctx, func() (err error) {
		e, err = s.attempt(ctx, key, f)
		return err
	})
	if err != nil && key != "" {
		what = fmt.Sprintf("%s %q", what, key)
	}
	return e, s.fail(what, err)
}

// attempt runs f once. If the commit fails in a way that leaves open whether it
// happened, it asks everybody in line to look.
func (s *sqlite) attempt(ctx context.Context, key string, f func(t *txn) error) (_ effects, err error) {
	if err := ctx.Err(); err != nil {
		return effects{}, err
	}
	ctx = s.brief(ctx)
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return effects{}, err
	}
	defer conn.Close()
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return effects{}, err
	}
	t := &txn{sqlite: s, ctx: ctx, tx: tx}
	t.now = readClock()
	if err = t.exec(s.s.lock, t.now.clock, t.now.at, t.now.wall); err == nil {
		// Waiting for the lock took time. From here on nobody else writes.
		t.now = readClock()
		err = f(t)
	}
	if err != nil {
		if undo := tx.Rollback(); undo != nil && !errors.Is(undo, sql.ErrTxDone) && !noTransaction(undo) {
			// The connection may still be in the transaction, and hold the write
			// lock of all processes: it must not go back into the pool.
			conn.Raw(func(any) error { return sqldriver.ErrBadConn })
		}
		return effects{}, err
	}
	if err = tx.Commit(); err != nil && !busy(err) {
		return effects{touched: []string{key}, strangers: true}, err
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
	return each(t.ctx, scan, t.tx.StmtContext(t.ctx, stmt), args...)
}

// errStop ends each early.
var errStop = errors.New("stop")

// each calls scan for each row of a statement, until it returns an error.
func each(ctx context.Context, scan func(*sql.Rows) error, stmt *sql.Stmt, args ...any) error {
	rows, err := stmt.QueryContext(ctx, args...)
	if err != nil {
		return err
	}
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
