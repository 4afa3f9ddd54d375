package fence

import (
	"database/sql"
	"fmt"
)

// Rows returns the outcome of a statement that compares the token itself, for a
// table that has a column for it:
//
//	err := fence.Rows(tx.ExecContext(ctx,
//		`UPDATE stock SET left_over = ?, fence = ?, writes = writes + 1 WHERE id = ? AND fence <= ?`,
//		n, lease.Token(), id, lease.Token()))
//
// If n comes from a read, show the token before that read, in a statement of its own or first
// in the transaction. Otherwise an older holder may write between the read and the write:
//
//	err := fence.Rows(db.ExecContext(ctx,
//		`UPDATE stock SET fence = ?, writes = writes + 1 WHERE id = ? AND fence <= ?`,
//		lease.Token(), id, lease.Token()))
//
// Rows returns ErrStale if the statement changed no row, the statement's own error if it
// failed, and nil otherwise. It sends no request, so it cannot tell a row with a larger
// token from a row that does not exist. Insert rows, with fence 0, before they are
// written under a lock. If ErrStale is unexpected, check that the row exists.
//
// MySQL and MariaDB do not count a row whose values an UPDATE leaves as they were, unless
// the connection has clientFoundRows=true. A holder that writes the same values twice
// would get ErrStale. Change a value in every write, as the counter "writes" does above,
// or set clientFoundRows=true.
//
// A statement over several rows returns ErrStale only if it changed none of them: use
// one statement for each row, or a [Table] in the same transaction.
//
// Rows also serves optimistic locking: "version = version + 1 … WHERE id = ? AND
// version = ?" refuses a writer without a lock that another writer has overtaken.
func Rows(r sql.Result, err error) error {
	if err != nil {
		return err
	}
	n, err := r.RowsAffected()
	if err != nil {
		return fmt.Errorf("fence: the statement was run, but the driver does not say how many rows it touched: %w", err)
	}
	return touched(n)
}

func touched(rows int64) error {
	if rows == 0 {
		return fmt.Errorf("fence: no row was touched: %w, or the row is not there; "+
			"take the lock again before writing", ErrStale)
	}
	return nil
}
