package fence

import (
	"database/sql"
	"fmt"
)

// Rows reads the outcome of a statement that compares the token itself, for a
// table that has a column for it:
//
//	err := fence.Rows(tx.ExecContext(ctx,
//		`UPDATE stock SET left_over = ?, fence = ?, writes = writes + 1 WHERE id = ? AND fence <= ?`,
//		n, lease.Token(), id, lease.Token()))
//
// It answers ErrStale if the statement touched no row, the statement's own error
// if it failed, and nil otherwise. It asks the database nothing, so it cannot tell
// a row with a larger token from a row that is not there: insert rows (with fence
// 0) before they are written under a lock, and look for the row if ErrStale comes
// as a surprise.
//
// On MySQL and MariaDB a row that an UPDATE leaves as it was is not counted, unless
// the connection says clientFoundRows=true. A holder that writes the same values
// twice would be taken for stale. So change something in every write, as the
// counter "writes" does above, or set clientFoundRows=true.
//
// A statement over several rows is refused only if all of them are: use one
// statement for each row, or a [Table] in the same transaction.
//
// Rows serves optimistic locking, too: "version = version + 1 … WHERE id = ? AND
// version = ?" refuses a writer without a lock that was overtaken.
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
