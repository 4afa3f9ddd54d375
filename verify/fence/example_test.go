package fence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/sqllock"
)

// The examples of package fence, run on a SQLite file: one that has a column for the
// token, one that has not.
func Example() {
	dir, err := os.MkdirTemp("", "fencelock")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	db, err := sql.Open("sqlite", sqllock.SQLiteDSN(filepath.Join(dir, "shop.db"))+"&_pragma=busy_timeout(5000)")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	ctx := context.Background()
	marks := fence.NewTable(fence.SQLite, "")
	if err := marks.Create(ctx, db); err != nil {
		fmt.Println(err)
		return
	}
	for _, s := range []string{
		`CREATE TABLE stock (sku TEXT PRIMARY KEY, left_over INT, fence BIGINT NOT NULL DEFAULT 0, writes BIGINT NOT NULL DEFAULT 0)`,
		`INSERT INTO stock (sku, left_over) VALUES ('sku1', 10)`,
		`CREATE TABLE orders (id TEXT PRIMARY KEY, state TEXT)`,
		`INSERT INTO orders VALUES ('42', 'new')`,
	} {
		if _, err := db.ExecContext(ctx, s); err != nil {
			fmt.Println(err)
			return
		}
	}

	setStock := func(lease *fencelock.Lease, left int) error {
		return fence.Rows(db.ExecContext(ctx,
			`UPDATE stock SET left_over = ?, fence = ?, writes = writes + 1 WHERE sku = 'sku1' AND fence <= ?`,
			left, lease.Token(), lease.Token()))
	}
	pay := func(lease *fencelock.Lease) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if err := marks.Advance(ctx, tx, "orders/42", lease.Token()); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `UPDATE orders SET state = 'paid' WHERE id = '42'`); err != nil {
			return err
		}
		return tx.Commit()
	}

	locks, _ := fencelock.New(sqllock.New(db, sqllock.SQLite, &sqllock.Options{CreateTables: true}), nil)
	defer locks.Close()
	first, err := locks.Lock(ctx, "sku1")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(setStock(first, 9), pay(first))

	// The first one hangs, and somebody breaks its lock.
	if err := locks.Break(ctx, "sku1", first.Token(), fencelock.Break{Reason: "it hangs"}); err != nil {
		fmt.Println(err)
		return
	}
	second, err := locks.Lock(ctx, "sku1")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer second.Release(ctx)
	fmt.Println(setStock(second, 8), pay(second))

	fmt.Println(errors.Is(setStock(first, 9), fence.ErrStale), errors.Is(pay(first), fence.ErrStale))
	// Output:
	// <nil> <nil>
	// <nil> <nil>
	// true true
}
