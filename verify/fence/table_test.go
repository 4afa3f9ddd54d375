package fence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/fence"
)

// neighbours are pairs of a token and the next: where a float loses the last digit,
// where texts change their length, and at the ends.
var neighbours = [][2]fence.Token{
	{1, 2}, {9, 10}, {1<<53 - 1, 1 << 53}, {1 << 53, 1<<53 + 1}, {1<<53 + 1, 1<<53 + 2},
	{1<<62 - 1, 1 << 62}, {1 << 62, 1<<62 + 1}, {math.MaxInt64 - 1, math.MaxInt64},
}

// newTable returns marks in a new database, which has a table "doc" with one row,
// and a table "log".
func newTable(t *testing.T, d database) (*fence.Table, *sql.DB) {
	t.Helper()
	db := d.open(t,
		`CREATE TABLE doc (id INT PRIMARY KEY, token BIGINT NOT NULL, n BIGINT NOT NULL)`,
		`INSERT INTO doc VALUES (1, 0, 0)`)
	table := fence.NewTable(d.dialect, "")
	for range 2 {
		steps.Must(t, table.Create(t.Context(), db))
	}
	return table, db
}

func begin(t *testing.T, db *sql.DB, level sql.IsolationLevel) *sql.Tx {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: level})
	steps.Must(t, err)
	t.Cleanup(func() { tx.Rollback() })
	return tx
}

// advance is a transaction of its own.
func advance(t *testing.T, table *fence.Table, db *sql.DB, level sql.IsolationLevel, resource string, token fence.Token) error {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: level})
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := table.Advance(t.Context(), tx, resource, token); err != nil {
		return err
	}
	return tx.Commit()
}

func TestTableRefusesSmallerTokensOnly(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d database, level sql.IsolationLevel) {
		table, db := newTable(t, d)
		for _, pair := range neighbours {
			old, new := pair[0], pair[1]
			resource := fmt.Sprint("orders/", old)
			for _, tok := range []fence.Token{old, old, new, new} {
				well(t, tok, advance(t, table, db, level, resource, tok))
			}
			staleError(t, advance(t, table, db, level, resource, old), fence.StaleError{Resource: resource, Token: old, Seen: new})
			well(t, "a refusal changed the mark", advance(t, table, db, level, resource, new))
		}
	})
}

func TestTableKeepsResourcesApartByteByByte(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d database, level sql.IsolationLevel) {
		table, db := newTable(t, d)
		names := []string{
			"a", "A", "a ", " a", "ä", "a\u0308", "\x00", "a\x00", "a\x00b", "\xff", "\\x61", "'", `"`, "%", "_", "1", "1.0",
			strings.Repeat("x", 1023), strings.Repeat("x", 1024),
		}
		for i, name := range names {
			if err := advance(t, table, db, level, name, fence.Token(100-i)); err != nil {
				t.Errorf("%.20q: %v", name, err)
			}
		}
		for i, name := range names {
			var stale *fence.StaleError
			if err := advance(t, table, db, level, name, fence.Token(99-i)); !errors.As(err, &stale) || stale.Seen != fence.Token(100-i) {
				t.Errorf("%.20q: %v; want %d seen", name, err, 100-i)
			}
		}
	})
}

func TestTableMayHaveAnotherName(t *testing.T) {
	t.Parallel()
	for _, d := range databases {
		db := d.open(t)
		for _, name := range []string{"Marks_2", map[string]string{"sqlite": "main.m", "postgres": "public.m", "mariadb": ""}[d.name]} {
			table := fence.NewTable(d.dialect, name)
			steps.Must(t, table.Create(t.Context(), db))
			if err := advance(t, table, db, sql.LevelDefault, "a", 9); err != nil {
				t.Errorf("%s: %q: %v", d.name, name, err)
			}
			if err := advance(t, table, db, sql.LevelDefault, "a", 7); !errors.Is(err, fence.ErrStale) {
				t.Errorf("%s: %q: %v", d.name, name, err)
			}
		}
	}
}

func TestTableIsCreatedByManyAtOnce(t *testing.T) {
	t.Parallel()
	for _, d := range databases {
		db := d.open(t)
		table := fence.NewTable(d.dialect, "")
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				well(t, d.name, table.Create(context.Background(), db))
			})
		}
		wg.Wait()
	}
}

func TestRolledBackWriteWasNotSeen(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d database, level sql.IsolationLevel) {
		table, db := newTable(t, d)
		steps.Must(t, advance(t, table, db, level, "a", 5))
		for _, resource := range []string{"a", "new"} {
			tx := begin(t, db, level)
			steps.Must(t, table.Advance(t.Context(), tx, resource, 9))
			steps.Must(t, tx.Rollback())
			well(t, resource, advance(t, table, db, level, resource, 7))
		}
	})
}

// start runs Advance on a goroutine and says whether it waits for somebody.
func start(t *testing.T, table *fence.Table, tx *sql.Tx, token fence.Token) (result chan error, waits bool) {
	t.Helper()
	result = make(chan error, 1)
	go func() { result <- table.Advance(context.Background(), tx, "a", token) }()
	select {
	case err := <-result:
		result <- err
		return result, false
	case <-time.After(200 * time.Millisecond):
		return result, true
	}
}

// The old holder is in the middle of its transaction when the new one comes: the new
// one waits, and what the old one commits is before what the new one reads.
func TestNewHolderWaitsForTheOldOnesTransaction(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d database, level sql.IsolationLevel) {
		table, db := newTable(t, d)
		for _, known := range []bool{false, true} { // at first the mark is not there yet
			base := fence.Token(10)
			if known {
				base = 20
			}
			old, new := begin(t, db, level), begin(t, db, level)
			steps.Must(t, table.Advance(t.Context(), old, "a", base+7))
			steps.Must(t, second(old.ExecContext(t.Context(), d.sql(`UPDATE doc SET token = ? WHERE id = 1`), base+7)))
			result, waits := start(t, table, new, base+9)
			if !waits {
				t.Fatalf("the new holder was let in beside the old one: %v", <-result)
			}
			steps.Must(t, old.Commit())
			err := <-result
			if err == nil {
				var seen fence.Token
				if err := new.QueryRowContext(t.Context(), `SELECT token FROM doc WHERE id = 1`).Scan(&seen); err != nil || seen != base+7 {
					t.Errorf("the new holder reads %v, %v; the old one had committed %v", seen, err, base+7)
				}
				err = new.Commit()
			} else if !again(err) || errors.Is(err, fence.ErrStale) {
				t.Errorf("the new holder got %v", err)
			} else if d.name != "postgres" || level == sql.LevelReadCommitted {
				t.Errorf("the database could have put them in order: %v", err)
			}
			new.Rollback()
			if again(err) {
				err = advance(t, table, db, level, "a", base+9)
			}
			well(t, "the new holder, again", err)
			stale(t, "the old holder, again", advance(t, table, db, level, "a", base+7))
		}
	})
}

// The new holder is in the middle of its transaction when the old one wakes up: it
// waits, and is let in only if the new one takes back what it did.
func TestOldHolderIsRefusedWhenTheNewOneCommits(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d database, level sql.IsolationLevel) {
		table, db := newTable(t, d)
		for _, commits := range []bool{false, true, true} { // the mark is not there at first
			new, old := begin(t, db, level), begin(t, db, level)
			steps.Must(t, table.Advance(t.Context(), new, "a", 9))
			result, waits := start(t, table, old, 7)
			if !waits {
				t.Fatalf("the old holder did not wait: %v", <-result)
			}
			end := new.Rollback
			if commits {
				end = new.Commit
			}
			steps.Must(t, end())
			switch err := <-result; {
			case commits && err == nil:
				t.Error("the old holder was let in after the new one")
			case !errors.Is(err, fence.ErrStale) && err != nil && !again(err):
				t.Errorf("commit %v: %v", commits, err)
			case !commits && errors.Is(err, fence.ErrStale):
				t.Errorf("refused for a mark that was taken back: %v", err)
			}
			old.Rollback()
			if err := advance(t, table, db, level, "a", 7); commits != errors.Is(err, fence.ErrStale) {
				t.Errorf("commit %v, the old holder, again: %v", commits, err)
			}
			new.Rollback()
		}
	})
}

// A transaction that read before the new holder wrote has a snapshot in which the
// mark is old. It must not be compared with that.
func TestOldSnapshotDoesNotFoolTheGuard(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d database, level sql.IsolationLevel) {
		table, db := newTable(t, d)
		for _, resource := range []string{"known", "new"} {
			if resource == "known" {
				steps.Must(t, advance(t, table, db, level, resource, 5))
			}
			old := begin(t, db, level)
			var n int
			steps.Must(t, old.QueryRowContext(t.Context(), `SELECT count(*) FROM fencelock_marks`).Scan(&n))
			done, waits := make(chan error, 1), false
			go func() { done <- advance(t, table, db, level, resource, 9) }()
			select {
			case err := <-done:
				steps.Must(t, err)
				done <- nil
			case <-time.After(500 * time.Millisecond):
				// MariaDB's serializable reads lock: then the new holder waits, and the
				// schedule cannot come about.
				if waits = true; level != sql.LevelSerializable {
					t.Fatal("the new holder waits for a reader")
				}
			}
			err := table.Advance(t.Context(), old, resource, 7)
			if err == nil {
				err = old.Commit()
			}
			old.Rollback()
			late := <-done
			if err == nil && !waits {
				t.Errorf("%s: the old holder was let in after the new one", resource)
			}
			for _, err := range []error{err, late} {
				if err != nil && !errors.Is(err, fence.ErrStale) && !again(err) {
					t.Errorf("%s: %v", resource, err)
				}
			}
		}
	})
}

// Whoever is let in finds nothing of a larger token, and what it reads and writes is
// not mixed with what others do.
func TestGuardedTransactionsNeverGoBackUnderConcurrency(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d database, level sql.IsolationLevel) {
		table, db := newTable(t, d)
		const tries = 25
		var mu sync.Mutex
		kept, refused, repeated := 0, 0, 0
		write := func(token fence.Token) error {
			tx, err := db.BeginTx(context.Background(), &sql.TxOptions{Isolation: level})
			if err != nil {
				return err
			}
			defer tx.Rollback()
			if err := table.Advance(context.Background(), tx, "doc", token); err != nil {
				return err
			}
			var before fence.Token
			var n int64
			if err := tx.QueryRowContext(context.Background(), `SELECT token, n FROM doc WHERE id = 1`).Scan(&before, &n); err != nil {
				return err
			}
			if before > token {
				t.Errorf("%v was let in and finds %v", token, before)
			}
			if _, err := tx.ExecContext(context.Background(), d.sql(`UPDATE doc SET token = ?, n = ? WHERE id = 1`), token, n+1); err != nil {
				return err
			}
			return tx.Commit()
		}
		try := func(token fence.Token) {
			err := write(token)
			for ; again(err); err = write(token) {
				mu.Lock()
				repeated++
				mu.Unlock()
			}
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				kept++
			case errors.Is(err, fence.ErrStale):
				refused++
			default:
				t.Error(err)
			}
		}
		var writers sync.WaitGroup
		for w := range 4 {
			writers.Go(func() {
				for i := range tries {
					try(fence.Token(1<<53 + i*4 + (w*3)%4)) // tokens that are not in order
				}
			})
		}
		writers.Wait()
		var n int
		steps.Must(t, db.QueryRow(`SELECT n FROM doc WHERE id = 1`).Scan(&n))
		t.Logf("%d writes kept, %d refused, %d run again", kept, refused, repeated)
		if n != kept || kept+refused != 4*tries {
			t.Errorf("%d writes were kept, and the row counts %d: one was lost", kept, n)
		}
	})
}
