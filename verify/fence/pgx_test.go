package fence_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/fence"
)

// How a table with a column for the token, and one without, are guarded with native pgx.
func ExampleAdvancePgx() {
	var pool *pgxpool.Pool
	marks := fence.NewTable(fence.Postgres, "")
	// In a migration: what marks.Schema returns.

	pay := func(ctx context.Context, lease *fencelock.Lease, order string) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if err := fence.AdvancePgx(ctx, marks, tx, "orders/"+order, lease.Token()); err != nil {
				return err // matches fence.ErrStale if the lock has passed on
			}
			_, err := tx.Exec(ctx, `UPDATE orders SET state = 'paid' WHERE id = $1`, order)
			return err
		})
	}
	setStock := func(ctx context.Context, lease *fencelock.Lease, sku string, left int) error {
		return fence.RowsOf(pool.Exec(ctx,
			`UPDATE stock SET left_over = $1, fence = $2, writes = writes + 1 WHERE sku = $3 AND fence <= $2`,
			left, lease.Token(), sku))
	}
	_, _ = pay, setStock
}

// A pool or a connection would run each statement in a transaction of its own.
func TestPgxPoolIsNoTransaction(t *testing.T) {
	for _, no := range []any{(*pgxpool.Pool)(nil), (*pgxpool.Conn)(nil), (*pgx.Conn)(nil)} {
		if _, ok := no.(fence.PgxTx[pgx.Row]); ok {
			t.Errorf("a %T is taken for a transaction", no)
		}
	}
	none := fence.AdvancePgx(t.Context(), fence.NewTable(fence.Postgres, ""), pgx.Tx(nil), "a", 1)
	if none == nil || !strings.Contains(none.Error(), "no transaction") {
		t.Errorf("without a transaction: %v", none)
	}
}

var pgxLevels = []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable}

// eachPgx runs a test under every isolation level, with statements prepared and in one message.
func eachPgx(t *testing.T, f func(t *testing.T, p pgxMarks)) {
	for _, level := range pgxLevels {
		for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeSimpleProtocol} {
			t.Run(fmt.Sprint(level, "/", mode), func(t *testing.T) {
				t.Parallel()
				f(t, newPgxMarks(t, level, mode))
			})
		}
	}
}

// pgxMarks are marks and a table "stock" in a database of the test's own.
type pgxMarks struct {
	*pgxpool.Pool
	table *fence.Table
	level pgx.TxIsoLevel
}

func newPgxMarks(t *testing.T, level pgx.TxIsoLevel, mode pgx.QueryExecMode) pgxMarks {
	config, err := pgxpool.ParseConfig(newPostgres(t))
	steps.Must(t, err)
	config.ConnConfig.DefaultQueryExecMode = mode
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	steps.Must(t, err)
	t.Cleanup(pool.Close)
	p := pgxMarks{pool, fence.NewTable(fence.Postgres, ""), level}
	schema, err := p.table.Schema()
	steps.Must(t, err)
	for _, s := range []string{
		schema,
		`CREATE TABLE stock (sku INT PRIMARY KEY, fence BIGINT NOT NULL DEFAULT 0)`,
		`INSERT INTO stock VALUES (1)`,
	} {
		steps.Must(t, second(pool.Exec(t.Context(), s)))
	}
	return p
}

func (p pgxMarks) advance(t *testing.T, resource string, token fence.Token) error {
	t.Helper()
	return pgx.BeginTxFunc(t.Context(), p, pgx.TxOptions{IsoLevel: p.level}, func(tx pgx.Tx) error {
		return fence.AdvancePgx(t.Context(), p.table, tx, resource, token)
	})
}

func TestPgxTableRefusesSmallerTokensOnly(t *testing.T) {
	t.Parallel()
	eachPgx(t, func(t *testing.T, p pgxMarks) {
		for _, pair := range neighbours {
			old, new := pair[0], pair[1]
			resource := fmt.Sprint("orders/\xff", old)
			for _, tok := range []fence.Token{old, old, new, new} {
				well(t, tok, p.advance(t, resource, tok))
			}
			staleError(t, p.advance(t, resource, old), fence.StaleError{Resource: resource, Token: old, Seen: new})
			well(t, "a refusal changed the mark", p.advance(t, resource, new))
		}
		steps.Is(t, "without a token", p.advance(t, "a", 0), fence.ErrNoToken)
		p.table = fence.NewTable(fence.SQLite, "")
		if err := p.advance(t, "a", 1); err == nil || !strings.Contains(err.Error(), "fence.Postgres") {
			t.Errorf("a table of SQLite: %v", err)
		}
	})
}

func TestPgxRowsRefusesSmallerTokensOnly(t *testing.T) {
	t.Parallel()
	eachPgx(t, func(t *testing.T, p pgxMarks) {
		const guarded = `UPDATE stock SET fence = $1 WHERE sku = 1 AND fence <= $1`
		for _, pair := range neighbours {
			steps.Must(t, second(p.Exec(t.Context(), `UPDATE stock SET fence = 0`)))
			old, new := pair[0], pair[1]
			for _, tok := range []fence.Token{old, old, new, new} {
				well(t, tok, fence.RowsOf(p.Exec(t.Context(), guarded, tok)))
			}
			stale(t, old, fence.RowsOf(p.Exec(t.Context(), guarded, old)))
			var seen fence.Token
			if err := p.QueryRow(t.Context(), `SELECT fence FROM stock`).Scan(&seen); err != nil || seen != new {
				t.Errorf("the column holds %v, %v; want %v", seen, err, new)
			}
		}
		if err := fence.RowsOf(p.Exec(t.Context(), `UPDATE nothing SET n = 1`)); err == nil || errors.Is(err, fence.ErrStale) {
			t.Errorf("a statement that fails: %v", err)
		}
	})
}
