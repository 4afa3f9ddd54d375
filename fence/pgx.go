package fence

import (
	"context"
	"errors"
)

// RowsOf is Rows for a driver whose results return the number of rows without an error,
// such as the pgconn.CommandTag of native pgx:
//
//	err := fence.RowsOf(tx.Exec(ctx,
//		`UPDATE stock SET left_over = $1, fence = $2, writes = writes + 1 WHERE id = $3 AND fence <= $2`,
//		n, lease.Token(), id))
func RowsOf(r interface{ RowsAffected() int64 }, err error) error {
	if err != nil {
		return err
	}
	return touched(r.RowsAffected())
}

// PgxTx has the methods of a transaction that AdvancePgx calls. A pgx.Tx implements it.
// A pgx.Conn and a pgxpool.Pool do not, because they lack Commit.
type PgxTx[R interface{ Scan(dest ...any) error }] interface {
	QueryRow(ctx context.Context, query string, args ...any) R
	Commit(ctx context.Context) error
}

// AdvancePgx is t.Advance for a transaction of native pgx, with the same promises.
// The dialect of the Table must be Postgres.
func AdvancePgx[R interface{ Scan(dest ...any) error }](
	ctx context.Context, t *Table, tx PgxTx[R], resource string, token Token,
) error {
	if err := t.check(resource, token); err != nil {
		return err
	}
	if tx == nil {
		return errNoTransaction
	}
	if t.d.name != Postgres.String() {
		return errors.New("fence: pgx speaks to PostgreSQL alone: make the Table with fence.Postgres")
	}
	var seen int64
	err := tx.QueryRow(ctx, t.sql(t.d.raise), []byte(resource), int64(token)).Scan(&seen)
	return t.judge(resource, token, Token(seen), err)
}
