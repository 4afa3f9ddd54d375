package sqllock_test

import (
	"context"
	"database/sql"

	"github.com/fencelock/fencelock/sqllock"
)

// The lock of an order ends with the transaction that pays it: no lease, no release. The Backend has a
// pool of its own.
func ExampleTx() {
	var db, lockDB *sql.DB
	backend := sqllock.New(lockDB, sqllock.Postgres, &sqllock.Options{CreateTables: true})

	pay := func(ctx context.Context, order string) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		held, err := sqllock.Tx(backend, tx).Lock(ctx, "orders/"+order)
		if err != nil {
			return err
		}
		// Whatever is done elsewhere carries held.Token(), and is refused there if it is stale.
		if _, err := tx.ExecContext(ctx, `UPDATE orders SET state = 'paid', fence = $1 WHERE id = $2`,
			held.Token(), order); err != nil {
			return err
		}
		if err := tx.Commit(); err != nil {
			return err // nothing was written, and another one may have the lock
		}
		_ = held.Ended(ctx) // the next one is granted at once, not within a tenth of a second
		return nil
	}
	_ = pay
}
