package fence

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// maxResource bounds the name of a resource in a Table.
const maxResource = 1024

// Table guards SQL writes to tables that have no column for the token. It keeps,
// in a table of its own in the same database, one row for each resource with the
// largest token seen, and advances it in the transaction that writes.
//
// Table never deletes a row. Delete the row of a resource that will never be written
// again.
//
// Its methods may be called from many goroutines at once.
type Table struct {
	d       dialect
	name    string
	invalid error
}

// NewTable returns the Table called name, or "fencelock_marks" if name is empty. A name
// has up to 63 letters, digits and underscores, and may have the name of a schema and a
// dot before it. It is never quoted. The first call returns an error if the name or the
// dialect is invalid.
func NewTable(d Dialect, name string) *Table {
	t := &Table{d: dialects[d], name: cmp.Or(name, defaultTable)}
	switch {
	case !tableName.MatchString(t.name):
		t.invalid = fmt.Errorf("fence: %.80q is no name for a table: want up to 63 letters, digits and underscores, "+
			"no digit first, and perhaps the name of a schema and a point before", t.name)
	case t.d.name == "":
		t.invalid = fmt.Errorf("fence: there is no dialect %d: pass fence.SQLite, fence.Postgres or fence.MySQL",
			int(d))
	}
	return t
}

// Schema returns the DDL of the table, for your migrations. It may be run more
// than once.
func (t *Table) Schema() (string, error) {
	if t.invalid != nil {
		return "", t.invalid
	}
	return t.sql(t.d.schema), nil
}

// Create creates the table unless it exists. Several processes may do so at once.
func (t *Table) Create(ctx context.Context, db *sql.DB) error {
	text, err := t.Schema()
	if err != nil {
		return err
	}
	if _, err := db.ExecContext(ctx, text); err != nil {
		// Two processes that create the same table at the same time may collide in
		// PostgreSQL's catalogue. The second one finds the table there.
		if _, again := db.ExecContext(ctx, text); again != nil {
			return fmt.Errorf("fence: creating table %s: %w", t.name, err)
		}
	}
	return nil
}

// Tx has the methods of a transaction that Advance calls. *sql.Tx implements it, and so
// does a *sql.Conn on which a transaction was begun by hand.
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Advance lets tx write to resource, or returns a *StaleError with the larger token that
// was seen; then roll tx back. Call it first in the transaction, before you read what
// the write is based on, and do all writes in the same transaction.
//
// Advance keeps the row of the resource locked until tx ends. Other transactions for the
// resource wait until then. After a commit of tx, those with a smaller token are refused.
// A transaction that hangs blocks its resource, so give it a time limit. If tx is rolled
// back, the mark is as it was before.
//
// Advance is correct under every isolation level from READ COMMITTED up. If the database
// cannot put two transactions in order, Advance returns the error of the database (a
// serialization failure, a deadlock, a busy file), which matches neither ErrStale nor
// ErrNoToken. Roll back, and run the transaction again with the same token.
//
// A resource has 1 to 1024 bytes of any value; "a" and "A" are two resources. Advance costs
// one round trip, and two on MySQL. It needs more with a driver that prepares each
// statement before it runs it, as go-sql-driver does without interpolateParams=true.
func (t *Table) Advance(ctx context.Context, tx Tx, resource string, token Token) error {
	if err := t.check(resource, token); err != nil {
		return err
	}
	if _, pool := tx.(*sql.DB); pool || tx == nil {
		return errNoTransaction
	}
	seen, err := t.raise(ctx, tx, []byte(resource), token)
	return t.judge(resource, token, seen, err)
}

var errNoTransaction = errors.New("fence: Advance was given no transaction: pass the one that writes, " +
	"else the comparison and the write are two steps")

// check says what is wrong with the Table or with what Advance is given.
func (t *Table) check(resource string, token Token) error {
	if t.invalid != nil {
		return t.invalid
	}
	if err := need(resource, token); err != nil {
		return err
	}
	if len(resource) == 0 || len(resource) > maxResource {
		return fmt.Errorf("fence: the name of a resource has 1 to %d bytes; this has %d", maxResource, len(resource))
	}
	return nil
}

// judge compares token with the mark, which was raised with err.
func (t *Table) judge(resource string, token, seen Token, err error) error {
	if err != nil {
		return fmt.Errorf("fence: advancing the mark of %s in table %s: %w", printable(resource), t.name, err)
	}
	return compare(resource, token, seen)
}
