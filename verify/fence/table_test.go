package fence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/fence"
)

// neighbours are pairs of a token and the next: where a float loses the last digit,
// where texts change their length, and at the ends. They rise.
var neighbours = [][2]fence.Token{
	{1, 2}, {9, 10}, {1<<53 - 1, 1 << 53}, {1 << 53, 1<<53 + 1}, {1<<53 + 1, 1<<53 + 2},
	{1<<62 - 1, 1 << 62}, {1 << 62, 1<<62 + 1}, {math.MaxInt64 - 1, math.MaxInt64},
}

// A row with a column for the token refuses the same ones.
func TestTableRefusesSmallerTokensOnly(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, g guarded) {
		for _, pair := range neighbours {
			old, new := pair[0], pair[1]
			resource := fmt.Sprint("orders/", old)
			for _, tok := range []fence.Token{old, old, new, new} {
				steps.Well(t, tok, g.advance(t, resource, tok))
				steps.Well(t, tok, g.rows(t, g, showToken, tok, tok))
			}
			staleError(t, g.advance(t, resource, old), fence.StaleError{Resource: resource, Token: old, Seen: new})
			stale(t, "the row", g.rows(t, g, showToken, old, old))
			steps.Well(t, "a refusal changed the mark", g.advance(t, resource, new))
		}
	})
}

func TestTableKeepsResourcesApartByteByByte(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, g guarded) {
		names := []string{
			"a", "A", "a ", " a", "ä", "a\u0308", "\x00", "a\x00", "a\x00b", "\xff", "\\x61", "'", `"`, "%", "_", "1", "1.0",
			strings.Repeat("x", 1023), strings.Repeat("x", 1024),
		}
		for i, name := range names {
			steps.Well(t, name, g.advance(t, name, fence.Token(100-i)))
		}
		for i, name := range names {
			seen := fence.Token(100 - i)
			staleError(t, g.advance(t, name, seen-1), fence.StaleError{Resource: name, Token: seen - 1, Seen: seen})
		}
	})
}

// start calls f on a goroutine, and reports whether it waits. On a busy machine it may not have begun:
// then the schedule is another, and the same must come of it.
func start(f func() error) (result chan error, waits bool) {
	result = make(chan error, 1)
	go func() { result <- f() }()
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
	each(t, func(t *testing.T, g guarded) {
		for _, base := range []fence.Token{10, 20} { // at first the mark is not there yet
			old, new := g.begin(t), g.begin(t)
			steps.Must(t, g.table.Advance(t.Context(), old, "a", base+7))
			steps.Must(t, g.rows(t, old, `UPDATE doc SET token = ? WHERE id = 1`, base+7))
			result, waits := start(func() error { return g.table.Advance(t.Context(), new, "a", base+9) })
			if !waits {
				t.Fatalf("the new holder was let in beside the old one: %v", <-result)
			}
			steps.Must(t, old.Commit())
			err := <-result
			if err == nil {
				var seen fence.Token
				steps.OK(t, new.QueryRowContext(t.Context(), `SELECT token FROM doc WHERE id = 1`).Scan(&seen))
				steps.Same(t, "what the new holder reads", seen, base+7)
				err = new.Commit()
			} else if !again(err) || errors.Is(err, fence.ErrStale) {
				t.Errorf("the new holder got %v", err)
			} else if g.name != "postgres" || g.level == sql.LevelReadCommitted {
				t.Errorf("the database could have put them in order: %v", err)
			}
			new.Rollback()
			if again(err) {
				err = g.advance(t, "a", base+9)
			}
			steps.Well(t, "the new holder, again", err)
			stale(t, "the old holder, again", g.advance(t, "a", base+7))
		}
	})
}

// The new holder is in the middle of its transaction when the old one wakes up: it
// waits, and is let in only if the new one takes back what it did.
func TestOldHolderIsRefusedWhenTheNewOneCommits(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, g guarded) {
		for name, guard := range map[string]func(tx *sql.Tx, token fence.Token) error{
			"Table": func(tx *sql.Tx, token fence.Token) error { return g.table.Advance(t.Context(), tx, "a", token) },
			"Rows":  func(tx *sql.Tx, token fence.Token) error { return g.rows(t, tx, showToken, token, token) },
		} {
			for i, commits := range []bool{false, true, true} { // the mark is not there at first
				base := fence.Token(10 * i)
				new, old, last := g.begin(t), g.begin(t), g.begin(t)
				steps.Must(t, guard(new, base+9))
				result, waits := start(func() error { return guard(old, base+7) })
				if !waits {
					t.Fatalf("%s: the old holder did not wait: %v", name, <-result)
				}
				end := new.Rollback
				if commits {
					end = new.Commit
				}
				steps.Must(t, end())
				switch err := <-result; {
				case commits && err == nil:
					t.Errorf("%s: the old holder was let in after the new one", name)
				case !errors.Is(err, fence.ErrStale) && err != nil && !again(err):
					t.Errorf("%s, commit %v: %v", name, commits, err)
				case !commits && errors.Is(err, fence.ErrStale):
					t.Errorf("%s: refused for a mark that was taken back: %v", name, err)
				}
				old.Rollback()
				if err := guard(last, base+7); commits != errors.Is(err, fence.ErrStale) {
					t.Errorf("%s, commit %v, the old holder, again: %v", name, commits, err)
				}
				last.Rollback()
			}
		}
	})
}

// A transaction that read before the new holder wrote has a snapshot in which the
// mark is old. It must not be compared with that.
func TestOldSnapshotDoesNotFoolTheGuard(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, g guarded) {
		if g.name == "mariadb" && g.level == sql.LevelSerializable {
			return // reads lock: the new holder would wait for the old one's end
		}
		steps.Must(t, g.advance(t, "known", 5))
		for _, resource := range []string{"known", "new"} {
			old := g.begin(t)
			var n int
			steps.Must(t, old.QueryRowContext(t.Context(), `SELECT count(*) FROM `+g.named).Scan(&n))
			steps.Must(t, g.advance(t, resource, 9))
			err := g.table.Advance(t.Context(), old, resource, 7)
			if err == nil {
				err = old.Commit()
			}
			old.Rollback()
			if !errors.Is(err, fence.ErrStale) && !again(err) {
				t.Errorf("%s: after the new holder, the old one got %v", resource, err)
			}
		}
	})
}

// Whoever is let in finds nothing of a larger token, and what it reads and writes is
// not mixed with what others do.
func TestGuardedTransactionsNeverGoBackUnderConcurrency(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, g guarded) {
		write := func(token fence.Token) error {
			return g.marks().Do(t.Context(), "doc", token, func(ctx context.Context) error {
				tx := fence.TxFrom(ctx)
				var before fence.Token
				var n int64
				if err := tx.QueryRowContext(ctx, `SELECT token, n FROM doc WHERE id = 1`).Scan(&before, &n); err != nil {
					return err
				}
				if before > token {
					t.Errorf("%v was let in and finds %v", token, before)
				}
				return g.rows(t, tx, `UPDATE doc SET token = ?, n = ? WHERE id = 1`, token, n+1)
			})
		}
		var kept atomic.Int64
		var writers sync.WaitGroup
		for w := range 4 {
			writers.Go(func() {
				for i := range 25 {
					token := fence.Token(1<<53 + i*4 + (w*3)%4) // tokens that are not in order
					err := write(token)
					for again(err) {
						err = write(token)
					}
					if err == nil {
						kept.Add(1)
					} else {
						stale(t, token, err)
					}
				}
			})
		}
		writers.Wait()
		var n int64
		steps.Must(t, g.QueryRow(`SELECT n FROM doc WHERE id = 1`).Scan(&n))
		steps.Same(t, "writes that the row counts", n, kept.Load())
	})
}

// A write stands together with its mark, or neither does.
func TestWriteThatFailsTakesItsMarkBack(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, g guarded) {
		refused := errors.New("refused")
		write := func(token fence.Token, f func() error) (err error) {
			defer func() {
				if recover() != nil {
					err = refused
				}
			}()
			return g.marks().Do(t.Context(), "doc", token, func(ctx context.Context) error {
				steps.Well(t, token, g.rows(t, fence.TxFrom(ctx), `UPDATE doc SET n = n + 1 WHERE id = 1`))
				return f()
			})
		}
		steps.Well(t, "a write", write(7, func() error { return nil }))
		steps.Is(t, "a write that fails", write(9, func() error { return refused }), refused)
		steps.Is(t, "a write that panics", write(9, func() error { panic("refused") }), refused)
		steps.Well(t, "the mark of a write that failed", write(8, func() error { return nil }))
		var n int
		steps.Must(t, g.QueryRow(`SELECT n FROM doc WHERE id = 1`).Scan(&n))
		steps.Same(t, "writes", n, 2)
	})
}
