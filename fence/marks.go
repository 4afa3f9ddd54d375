package fence

import (
	"context"
	"database/sql"
	"fmt"
)

// Marks remembers the largest token that each resource has seen, for [Handler].
// [Gates] keeps marks in memory, [Table.Marks] in a database.
type Marks interface {
	// Do runs f, unless a larger token than t was seen for resource: then it returns an
	// error that matches ErrStale, ideally a *StaleError. While f runs no other f of the
	// same resource runs, in any process that shares the marks. If Do returns nil, f has
	// returned nil and the mark stays. If f returns an error, Do returns one that matches
	// it. An implementation may keep the mark or drop it then, so f must have written
	// nothing, or nothing that matters.
	//
	// Do may be called from many goroutines at once. It returns soon after ctx ends,
	// unless f is running.
	Do(ctx context.Context, resource string, t Token, f func(ctx context.Context) error) error
}

// Marks returns the marks of t for [Handler]. Each f runs in a transaction of its own on
// db, which [TxFrom] finds in f's context. If f returns nil, its writes in the
// transaction are committed together with the mark. If f returns an error or panics,
// both are rolled back. A write of f outside that transaction is not guarded.
//
// o is as for [sql.DB.BeginTx]; nil is the database's default. Each f costs the round
// trips of Advance, and those of beginning and ending a transaction.
func (t *Table) Marks(db *sql.DB, o *sql.TxOptions) Marks { return &tableMarks{t, db, o} }

type tableMarks struct {
	table *Table
	db    *sql.DB
	o     *sql.TxOptions
}

func (m *tableMarks) Do(ctx context.Context, resource string, t Token, f func(ctx context.Context) error) error {
	if err := need(resource, t); err != nil {
		return err
	}
	tx, err := m.db.BeginTx(ctx, m.o)
	if err != nil {
		return fmt.Errorf("fence: beginning a transaction for %s: %w", printable(resource), err)
	}
	defer tx.Rollback() // does nothing after Commit
	if err := m.table.Advance(ctx, tx, resource, t); err != nil {
		return err
	}
	if err := f(context.WithValue(ctx, txKey{}, tx)); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("fence: committing the write to %s: %w", printable(resource), err)
	}
	return nil
}

// The keys of context values are types of their own, so that no other package has them.
type (
	txKey    struct{}
	tokenKey struct{}
)

// TxFrom returns the transaction in which a handler behind [Table.Marks] must
// write, and nil elsewhere.
func TxFrom(ctx context.Context) *sql.Tx {
	tx, _ := ctx.Value(txKey{}).(*sql.Tx)
	return tx
}

// WithToken returns a context that carries t, for [Transport].
func WithToken(ctx context.Context, t Token) context.Context {
	return context.WithValue(ctx, tokenKey{}, t)
}

// TokenFrom returns the token that ctx carries, and zero if it carries none. A
// handler behind [Handler] finds the token of its request there.
func TokenFrom(ctx context.Context) Token {
	t, _ := ctx.Value(tokenKey{}).(Token)
	return t
}
