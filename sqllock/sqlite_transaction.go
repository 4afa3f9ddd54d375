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
	return s.inTurn(ctx, s.turn, func() error { return s.on(ctx, sameFile, f) })
}

// inTurn runs f while it holds a place in turn.
func (s *sqlite) inTurn(ctx context.Context, turn chan struct{}, f func() error) error {
	select {
	case turn <- struct{}{}:
	case <-ctx.Done():
		return &outOfTimeError{last: errNoTurn, ended: ctx.Err()}
	}
	defer func() { <-turn }()
	return f()
}

// on runs f on the file that the path leads to. If that changes meanwhile, what f did is
// lost with the old file. f runs again on the new one then, or, with sameFile, on returns
// errMoved.
func (s *sqlite) on(ctx context.Context, sameFile bool, f func(d *database) error) error {
	for {
		d := s.opened.Load()
		switch {
		case d != nil && !d.ended.Load():
		case d != nil && sameFile:
			return errMoved
		default:
			var err error
			if d, err = s.database(ctx); err != nil {
				return err
			}
		}
		if err := s.once(d, f); sameFile || !movedAway(err) {
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
	if _, moved := d.file.stat(); d.ended.Load() || movedAway(moved) {
		err = errMoved
	}
	if movedAway(err) {
		d.end()
	}
	return err
}

// statementContext returns the context for a statement that has its connection. It takes some
// microseconds, and needs no interrupt where it does not wait inside SQLite: whether a statement
// that was interrupted did its work is unknown. A context that cannot end also saves a goroutine per
// statement: a sixth of a free lock's cost.
func (s *sqlite) statementContext(ctx context.Context) context.Context {
	if s.ignoresContext() {
		return ctx
	}
	return context.WithoutCancel(ctx)
}

// waitsForConnection reports whether a statement may wait until the program gives a connection back.
func (s *sqlite) waitsForConnection() bool { return s.db.Stats().MaxOpenConnections > 0 }

// txn is a step in a transaction that has the write lock.
type txn struct {
	*sqlite
	*database
	ctx  context.Context
	tx   *sql.Tx
	now  instant
	key  string // for errors
	args []any
	take func(r *row) error // takes the rows of the answer
}

// transact makes a step in a transaction.
func (s *sqlite) transact(ctx context.Context, d *database, key, step string, into sink, args []any) error {
	into.begin()
	return s.inTransaction(ctx, func(ctx context.Context, conn *sql.Conn, tx *sql.Tx) error {
		t := &txn{sqlite: s, database: d, ctx: ctx, tx: tx, now: readClock(), key: key, args: args, take: into.add}
		_, err := t.run("begin")
		if err == nil {
			// Waiting for the lock took time. From here on nobody else writes.
			t.now = readClock()
			err = t.step(step)
		}
		if err != nil {
			return err
		}
		return cmp.Or(tx.Commit(), d.file.checkConn(conn))
	})
}

// inTransaction waits for a connection until ctx ends, and runs f in a transaction, which f commits. It
// undoes the transaction if f fails.
func (s *sqlite) inTransaction(ctx context.Context, f func(context.Context, *sql.Conn, *sql.Tx) error) error {
	conn, err := s.db.Conn(ctx)
	if ended := ctx.Err(); err != nil && ended != nil {
		return &outOfTimeError{last: errAllInUse, ended: ended}
	}
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx = s.statementContext(ctx)
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err = f(ctx, conn, tx); err == nil {
		return nil
	}
	undo := tx.Rollback()
	if undo != nil && !errors.Is(undo, sql.ErrTxDone) && !says(undo, "no transaction is active") {
		// The connection may still be in the transaction, and hold the write
		// lock of all processes: it must not go back into the pool.
		closeConn(conn)
	}
	return err
}

// run runs the statements of some files for the answer. It stops behind a statement that
// decides what the step answers.
func (t *txn) run(names ...string) (decided bool, err error) {
	for _, name := range names {
		if decided, err = t.query(name, t.args, t.take); err != nil || decided {
			break
		}
	}
	return decided, err
}

// query runs the statements of a file, and gives take each row.
func (t *txn) query(name string, args []any, take func(r *row) error) (decided bool, err error) {
	for i := range t.statements[name] {
		s := &t.statements[name][i]
		decided, err = s.query(t.ctx, t.tx, s.pick(t.now, t.node, args), t.key, take)
		if err != nil || decided {
			break
		}
	}
	return decided, err
}
