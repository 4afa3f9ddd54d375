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
		s.ended(d)
	}
	return err
}

// alone runs a statement that writes, as a transaction by itself, and returns whether it
// has changed anything. A statement runs again if the database was busy.
func (s *sqlite) alone(ctx context.Context, run func(ctx context.Context) (sql.Result, error)) (changed bool, err error) {
	err = retry(ctx, func() error {
		r, err := run(s.brief(ctx))
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
	*database
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
	return s.steps(ctx, what, key, s.on, f)
}

// steps is step; on decides what happens when the file was replaced.
func (s *sqlite) steps(ctx context.Context, what, key string, on func(context.Context, func(*database) error) error, f func(t *txn) error) (effects, error) {
	if err := s.take(ctx); err != nil {
		return effects{}, err
	}
	defer s.give()
	var e effects
	err := on(ctx, func(d *database) error {
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

// attempt runs f once. If the commit fails in a way that leaves open whether it
// happened, it asks everybody in line to look.
func (s *sqlite) attempt(ctx context.Context, d *database, key string, f func(t *txn) error) (_ effects, err error) {
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
	t := &txn{sqlite: s, database: d, ctx: ctx, tx: tx}
	t.now = readClock()
	if err = t.exec(t.lock, t.now.clock, t.now.at, t.now.wall); err == nil {
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
