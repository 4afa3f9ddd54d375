package sqllock

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
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
	key string // for errors
}

// transact runs f in a transaction, and undoes the transaction if f returns an error. f may
// run again if the database was busy, so it begins anew each time. sameFile is as of on.
func (s *sqlite) transact(ctx context.Context, sameFile bool, key string, f func(t *txn) error) error {
	return s.write(ctx, sameFile, func(d *database) error {
		return retryBusy(ctx, func() error { return s.attempt(ctx, d, key, f) })
	})
}

// attempt runs f once.
func (s *sqlite) attempt(ctx context.Context, d *database, key string, f func(t *txn) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	ctx = s.statementContext(ctx)
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	t := &txn{sqlite: s, database: d, ctx: ctx, tx: tx, now: readClock(), key: key}
	if _, err = t.run("begin", nil, func(*row) error { return nil }); err == nil {
		// Waiting for the lock took time. From here on nobody else writes.
		t.now = readClock()
		err = f(t)
	}
	if err == nil {
		return cmp.Or(tx.Commit(), checkConn(d, conn))
	}
	undo := tx.Rollback()
	if undo != nil && !errors.Is(undo, sql.ErrTxDone) && !says(undo, "no transaction is active") {
		// The connection may still be in the transaction, and hold the write
		// lock of all processes: it must not go back into the pool.
		closeConn(conn)
	}
	return err
}

// run runs the statements of a file, and gives take each row. It stops behind a statement
// that decides what the step answers.
func (t *txn) run(name string, args []any, take func(r *row) error) (decided bool, err error) {
	for i := range t.statements[name] {
		s := &t.statements[name][i]
		if s.only > 0 && isEmpty(args[s.only-own-1]) {
			continue
		}
		if s.silent {
			_, err = s.exec(t.ctx, t.tx, t.now, t.node, args)
		} else {
			decided, err = s.query(t.ctx, t.tx, t.now, t.node, args, t.key, take)
		}
		if err != nil || decided {
			return decided, err
		}
	}
	return false, nil
}
