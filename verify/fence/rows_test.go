package fence_test

import (
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/fence"
)

// setNumber is a guarded write that changes something each time.
const setNumber = `UPDATE doc SET n = ?, token = ?, writes = writes + 1 WHERE id = 1 AND token <= ?`

// An old holder wakes up after the new one has read, and before it has written. Its write is refused
// if the new holder has shown its token before it read. Otherwise two write what both have read.
func TestTokenIsShownBeforeTheRead(t *testing.T) {
	t.Parallel()
	for _, d := range databases {
		for _, shown := range []bool{false, true} {
			db := d.open(t, docTable...)
			read := func(tok fence.Token) (n int) {
				t.Helper()
				if shown {
					steps.Must(t, d.rows(t, db, showToken, tok, tok))
				}
				steps.Must(t, db.QueryRowContext(t.Context(), `SELECT n FROM doc WHERE id = 1`).Scan(&n))
				return n
			}
			old := read(7) // and is stopped until its lease is over
			new := read(9)
			err := d.rows(t, db, setNumber, old-1, 7, 7)
			if errors.Is(err, fence.ErrStale) != shown {
				t.Errorf("%s: the token was shown: %v; the old holder's write: %v", d.name, shown, err)
			}
			steps.Well(t, d.name+": the new holder", d.rows(t, db, setNumber, new-1, 9, 9))
		}
	}
}

// MySQL and MariaDB do not count a row that stays as it was. So the same values
// twice look stale, unless something changes in every write, or the connection says
// clientFoundRows. This is why the documentation says so.
func TestMySQLDoesNotCountWhatStaysAsItWas(t *testing.T) {
	t.Parallel()
	for _, d := range databases {
		const plain = `UPDATE doc SET n = ?, token = ? WHERE id = 1 AND token <= ?`
		dsn := d.dsn(t)
		db := d.openDSN(t, dsn, docTable...)
		twice := func(db *sql.DB, statement string, tok fence.Token) error {
			t.Helper()
			steps.Well(t, d.name+": the first time", d.rows(t, db, statement, 90, tok, tok))
			return d.rows(t, db, statement, 90, tok, tok)
		}
		if err := twice(db, plain, 7); errors.Is(err, fence.ErrStale) != (d.dialect == fence.MySQL) {
			t.Errorf("%s: the same values twice: %v", d.name, err)
		}
		steps.Well(t, d.name+": with a counter that changes", twice(db, setNumber, 8))
		if d.dialect == fence.MySQL {
			sep := "?"
			if strings.Contains(dsn, "?") {
				sep = "&"
			}
			steps.Well(t, d.name+": with clientFoundRows", twice(d.openDSN(t, dsn+sep+"clientFoundRows=true"), plain, 9))
		}
	}
}
