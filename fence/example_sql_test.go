package fence_test

import (
	"context"
	"database/sql"
	"errors"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/fence"
)

// The table has a column for the token, and a counter that changes with every write,
// which MySQL needs to count the row:
//
//	ALTER TABLE stock ADD COLUMN fence BIGINT NOT NULL DEFAULT 0, ADD COLUMN writes BIGINT NOT NULL DEFAULT 0
func ExampleRows() {
	var db *sql.DB
	setStock := func(ctx context.Context, lease *fencelock.Lease, sku string, left int) error {
		return fence.Rows(db.ExecContext(ctx,
			`UPDATE stock SET left_over = ?, fence = ?, writes = writes + 1 WHERE sku = ? AND fence <= ?`,
			left, lease.Token(), sku, lease.Token()))
	}
	_ = setStock
}

// The version number of optimistic locking is the relative of the fencing token. It
// needs no lock: whoever was overtaken since it read is refused, and reads again.
func ExampleRows_version() {
	var db *sql.DB
	addStock := func(ctx context.Context, sku string, n int) error {
		for {
			var left, version int64
			err := db.QueryRowContext(ctx, `SELECT left_over, version FROM stock WHERE sku = ?`, sku).Scan(&left, &version)
			if err != nil {
				return err // sql.ErrNoRows, if there is no such row
			}
			err = fence.Rows(db.ExecContext(ctx,
				`UPDATE stock SET left_over = ?, version = version + 1 WHERE sku = ? AND version = ?`,
				left+int64(n), sku, version))
			if !errors.Is(err, fence.ErrStale) {
				return err
			}
		}
	}
	_ = addStock
}

// The tables stay as they are: the mark has a row of its own, in the transaction
// that writes.
func ExampleTable_Advance() {
	var db *sql.DB
	marks := fence.NewTable(fence.Postgres, "")
	// Once, or in a migration with what marks.Schema returns:
	//	err := marks.Create(ctx, db)

	pay := func(ctx context.Context, lease *fencelock.Lease, order string) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback() // does nothing after Commit
		if err := marks.Advance(ctx, tx, "orders/"+order, lease.Token()); err != nil {
			return err // matches fence.ErrStale if the lock has passed on
		}
		if _, err := tx.ExecContext(ctx, `UPDATE orders SET state = 'paid' WHERE id = $1`, order); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO ledger (order_id) VALUES ($1)`, order); err != nil {
			return err
		}
		return tx.Commit()
	}
	_ = pay
}
