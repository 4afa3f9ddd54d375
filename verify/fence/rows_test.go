package fence_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/fence"
)

// newStock returns a table with a column for the token, and one row.
func newStock(t *testing.T, d database) *sql.DB {
	t.Helper()
	return d.open(t,
		`CREATE TABLE stock (sku INT PRIMARY KEY, n BIGINT NOT NULL, fence BIGINT NOT NULL DEFAULT 0, writes BIGINT NOT NULL DEFAULT 0)`,
		`INSERT INTO stock (sku, n) VALUES (1, 100)`)
}

const guarded = `UPDATE stock SET n = ?, fence = ?, writes = writes + 1 WHERE sku = 1 AND fence <= ?`

func TestRowsRefusesSmallerTokensOnly(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d database, level sql.IsolationLevel) {
		db := newStock(t, d)
		for _, pair := range neighbours {
			old, new := pair[0], pair[1]
			steps.Must(t, second(db.ExecContext(t.Context(), `UPDATE stock SET fence = 0`)))
			write := func(tok fence.Token) error {
				tx := begin(t, db, level)
				defer tx.Rollback()
				if err := fence.Rows(tx.ExecContext(t.Context(), d.sql(guarded), 100, tok, tok)); err != nil {
					return err
				}
				return tx.Commit()
			}
			for _, tok := range []fence.Token{old, old, new, new} { // the same values twice, too
				well(t, tok, write(tok))
			}
			if err := write(old); !errors.Is(err, fence.ErrStale) {
				t.Errorf("%v after %v: %v", old, new, err)
			}
			var seen fence.Token
			if err := db.QueryRowContext(t.Context(), `SELECT fence FROM stock`).Scan(&seen); err != nil || seen != new {
				t.Errorf("the column holds %v, %v; want %v", seen, err, new)
			}
		}
		stale(t, "a row that is not there", fence.Rows(db.ExecContext(t.Context(), `UPDATE stock SET n = 1 WHERE sku = 2`)))
		if err := fence.Rows(db.ExecContext(t.Context(), `UPDATE nothing SET n = 1`)); err == nil || errors.Is(err, fence.ErrStale) {
			t.Errorf("a statement that fails: %v", err)
		}
	})
}

// An old holder wakes up after the new one has read, and before it has written. Its write is refused
// if the new holder has shown its token before it read. Otherwise two write what both have read.
func TestTokenIsShownBeforeTheRead(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d database, _ sql.IsolationLevel) {
		for _, shown := range []bool{false, true} {
			db := newStock(t, d)
			read := func(tok fence.Token) (n int) {
				t.Helper()
				if shown {
					const show = `UPDATE stock SET fence = ?, writes = writes + 1 WHERE sku = 1 AND fence <= ?`
					steps.Must(t, fence.Rows(db.ExecContext(t.Context(), d.sql(show), tok, tok)))
				}
				steps.Must(t, db.QueryRowContext(t.Context(), `SELECT n FROM stock WHERE sku = 1`).Scan(&n))
				return n
			}
			write := func(n int, tok fence.Token) error {
				return fence.Rows(db.ExecContext(t.Context(), d.sql(guarded), n, tok, tok))
			}
			old := read(7) // and is stopped until its lease is over
			new := read(9)
			err := write(old-1, 7)
			if errors.Is(err, fence.ErrStale) != shown {
				t.Errorf("the token was shown: %v; the old holder's write: %v", shown, err)
			}
			well(t, "the new holder", write(new-1, 9))
		}
	})
}

// The old holder's UPDATE waits for the new one's transaction, and is judged by what
// that one commits.
func TestRowsJudgesByWhatTheOtherCommits(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d database, level sql.IsolationLevel) {
		db := newStock(t, d)
		for _, commits := range []bool{false, true} {
			new, old := begin(t, db, level), begin(t, db, level)
			steps.Must(t, fence.Rows(new.ExecContext(t.Context(), d.sql(guarded), 90, 9, 9)))
			result := make(chan error, 1)
			go func() { result <- fence.Rows(old.ExecContext(context.Background(), d.sql(guarded), 70, 7, 7)) }()
			select {
			case err := <-result:
				t.Fatalf("the old holder did not wait: %v", err)
			case <-time.After(200 * time.Millisecond):
			}
			end := new.Rollback
			if commits {
				end = new.Commit
			}
			steps.Must(t, end())
			switch err := <-result; {
			case commits && err == nil:
				t.Error("the old holder was let in after the new one")
			case !commits && errors.Is(err, fence.ErrStale):
				t.Error("refused for what was taken back")
			case err != nil && !errors.Is(err, fence.ErrStale) && !again(err):
				t.Error(err)
			}
			old.Rollback()
		}
	})
}

// MySQL and MariaDB do not count a row that stays as it was. So the same values
// twice look stale, unless something changes in every write, or the connection says
// clientFoundRows. This is why the documentation says so.
func TestMySQLDoesNotCountWhatStaysAsItWas(t *testing.T) {
	t.Parallel()
	for _, d := range databases {
		const plain = `UPDATE stock SET n = ?, fence = ? WHERE sku = 1 AND fence <= ?`
		dsn := d.dsn(t)
		db := d.openDSN(t, dsn,
			`CREATE TABLE stock (sku INT PRIMARY KEY, n BIGINT NOT NULL, fence BIGINT NOT NULL, writes BIGINT NOT NULL)`,
			`INSERT INTO stock VALUES (1, 100, 0, 0)`)
		twice := func(db *sql.DB, statement string, tok fence.Token) error {
			t.Helper()
			if err := fence.Rows(db.ExecContext(t.Context(), d.sql(statement), 90, tok, tok)); err != nil {
				t.Fatalf("%s: the first time: %v", d.name, err)
			}
			return fence.Rows(db.ExecContext(t.Context(), d.sql(statement), 90, tok, tok))
		}
		if err := twice(db, plain, 7); errors.Is(err, fence.ErrStale) != (d.dialect == fence.MySQL) {
			t.Errorf("%s: the same values twice: %v", d.name, err)
		}
		well(t, d.name+": with a counter that changes", twice(db, guarded, 8))
		if d.dialect == fence.MySQL {
			sep := "?"
			if strings.Contains(dsn, "?") {
				sep = "&"
			}
			well(t, d.name+": with clientFoundRows", twice(d.openDSN(t, dsn+sep+"clientFoundRows=true"), plain, 9))
		}
	}
}
