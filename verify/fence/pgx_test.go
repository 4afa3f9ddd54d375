package fence_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/fence"
)

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

// A row with a column for the token refuses the same ones. Statements are prepared, or in one message.
func TestPgxTableRefusesSmallerTokensOnly(t *testing.T) {
	t.Parallel()
	table := fence.NewTable(fence.Postgres, "")
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeSimpleProtocol} {
		config, err := pgxpool.ParseConfig(newPostgres(t))
		steps.Must(t, err)
		config.ConnConfig.DefaultQueryExecMode = mode
		pool, err := pgxpool.NewWithConfig(t.Context(), config)
		steps.Must(t, err)
		t.Cleanup(pool.Close)
		schema, err := table.Schema()
		steps.Must(t, err)
		for _, s := range append([]string{schema}, docTable...) {
			steps.Must(t, steps.ErrOf(pool.Exec(t.Context(), s)))
		}
		advance := func(table *fence.Table, resource string, token fence.Token) error {
			return pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
				return fence.AdvancePgx(t.Context(), table, tx, resource, token)
			})
		}
		rows := func(token fence.Token) error {
			const show = `UPDATE doc SET token = $1 WHERE id = 1 AND token <= $1`
			return fence.RowsOf(pool.Exec(t.Context(), show, token))
		}
		for _, pair := range neighbours {
			old, new := pair[0], pair[1]
			resource := fmt.Sprint("orders/\xff", old)
			for _, tok := range []fence.Token{old, old, new, new} {
				steps.Well(t, tok, advance(table, resource, tok))
				steps.Well(t, tok, rows(tok))
			}
			staleError(t, advance(table, resource, old), fence.StaleError{Resource: resource, Token: old, Seen: new})
			stale(t, "the row", rows(old))
			steps.Well(t, "a refusal changed the mark", advance(table, resource, new))
		}
		steps.Is(t, "without a token", advance(table, "a", 0), fence.ErrNoToken)
		err = advance(fence.NewTable(fence.SQLite, ""), "a", 1)
		if err == nil || !strings.Contains(err.Error(), "fence.Postgres") {
			t.Errorf("a table of SQLite: %v", err)
		}
		err = fence.RowsOf(pool.Exec(t.Context(), `UPDATE nothing SET n = 1`))
		if err == nil || errors.Is(err, fence.ErrStale) {
			t.Errorf("a statement that fails: %v", err)
		}
	}
}
