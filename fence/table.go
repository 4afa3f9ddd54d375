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
// Its rows stay until somebody deletes them. Delete the row of a resource that
// will never be written again.
//
// Its methods may be called from many goroutines at once.
type Table struct {
	d       dialect
	name    string
	invalid error
}

// NewTable returns the Table called name, "fencelock_marks" if it is empty. A name
// is up to 63 letters, digits and underscores, with the name of a schema and a
// point before it if need be; it is never quoted. A bad name or dialect is the
// answer to the first call.
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

// Create creates the table unless it is there. Several processes may do so at once.
func (t *Table) Create(ctx context.Context, db *sql.DB) error {
	text, err := t.Schema()
	if err != nil {
		return err
	}
	if _, err := db.ExecContext(ctx, text); err != nil {
		// Two who create the same table at the same time may meet in PostgreSQL's
		// catalogue; the one who comes second finds it there.
		if _, again := db.ExecContext(ctx, text); again != nil {
			return fmt.Errorf("fence: creating table %s: %w", t.name, err)
		}
	}
	return nil
}

// Tx is what Advance needs of a transaction. *sql.Tx has it, and so has a *sql.Conn
// on which a transaction was begun by hand.
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Advance lets tx write to resource, or answers an ErrStale that says which larger
// token was seen; then roll tx back. Call it first in the transaction, before what
// the write is based on is read, and do all writes in the same transaction.
//
// It keeps the resource's row locked until tx ends. Who comes with a larger token
// waits for tx to end; who comes with a smaller one waits too, and is refused if
// tx commits. So a transaction that hangs keeps its resource: give it a time limit.
// If tx is rolled back the mark is as it was before.
//
// It is right under every isolation level from READ COMMITTED up. Where the
// database cannot put two transactions in order it says so with an error of its
// own (a serialization failure, a deadlock, a busy file), which is returned and
// matches neither ErrStale nor ErrNoToken: roll back, and run the transaction again
// with the same token.
//
// Resource is 1 to 1024 bytes of any value; "a" and "A" are two resources. It costs
// one round trip, and two on MySQL; a driver that prepares each statement before it
// runs it, as go-sql-driver does without interpolateParams=true, needs more.
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
