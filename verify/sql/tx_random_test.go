package sql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/internal/history"
	"github.com/fencelock/fencelock/internal/testclient"
	"github.com/fencelock/fencelock/sqllock"
)

// schedule is a random one of transactions and Clients that want two keys. Under each key a
// number is read and written with one more, in two statements that do not lock what they read.
type schedule struct {
	t     *testing.T
	s     *store
	db    *sql.DB // of transactions, and of those who write under a lease
	began time.Time

	mu     sync.Mutex
	events []history.Event
	writes map[string]int // that were committed
	ways   map[string]int
}

func (x *schedule) note(op history.Op, e history.Event) {
	x.mu.Lock()
	defer x.mu.Unlock()
	e.Op, e.At = op, time.Since(x.began)
	x.events = append(x.events, e)
}

func (x *schedule) count(way, key string, committed bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.ways[way]++
	if committed {
		x.writes[key]++
	}
}

// goesOn reports that a spell is not over, or, on a busy machine, that a way was not taken yet.
func (x *schedule) goesOn() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	took := time.Since(x.began)
	return took < spell || len(x.ways) < 4 && took < time.Minute
}

// add reads the number of a key, and writes the next one.
func (x *schedule) add(key string, on interface {
	QueryRowContext(context.Context, string, ...any) *sql.Row
	ExecContext(context.Context, string, ...any) (sql.Result, error)
}) error {
	var n int
	ctx := context.Background()
	err := on.QueryRowContext(ctx, x.s.sql("SELECT n FROM app_n WHERE k = ?"), key).Scan(&n)
	if err == nil {
		_, err = on.ExecContext(ctx, x.s.sql("UPDATE app_n SET n = ? WHERE k = ?"), n+1, key)
	}
	return err
}

// locked takes a key by lock, and notes what becomes of it.
func (x *schedule) locked(e *history.Event, lock func(ctx context.Context) (int64, error)) bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rand.Int64N(int64(2*time.Second))))
	defer cancel()
	x.note(history.Enter, *e)
	token, err := lock(ctx)
	if err != nil {
		if !errors.Is(err, fencelock.ErrNotAcquired) && !errors.Is(err, context.DeadlineExceeded) &&
			!errors.Is(err, fencelock.ErrUnavailable) {
			x.t.Errorf("a lock in a random schedule: %v", err)
		}
		x.note(history.Refused, *e)
		return false
	}
	e.Token = token
	x.note(history.Believe, *e)
	return true
}

// transact takes a key in a transaction, which then ends in one of the ways.
func (x *schedule) transact(b *sqllock.Backend, key string, e history.Event) {
	tx := x.s.transaction(x.t, b, x.db, nil)
	defer tx.Rollback()
	try := rand.IntN(3) == 0
	if !x.locked(&e, func(ctx context.Context) (int64, error) {
		lock := tx.Lock
		if try {
			lock = tx.TryLock
		}
		held, err := lock(ctx, key)
		if err != nil {
			return 0, err
		}
		return int64(held.Token()), nil
	}) {
		return
	}
	well(x.t, "a write in a transaction", x.add(key, tx))
	switch n := rand.IntN(8); n {
	case 0:
		id := x.s.session(x.t, tx)
		x.note(history.Release, e)
		x.s.kill(x.t, id)
		x.count("kill", key, false)
	case 1, 2:
		x.note(history.Release, e)
		well(x.t, "ROLLBACK", tx.Rollback())
		x.count("rollback", key, false)
	default:
		x.note(history.Release, e)
		well(x.t, "COMMIT", tx.Commit())
		x.count("commit", key, true)
	}
}

// lease takes a key by a Client.
func (x *schedule) lease(c *fencelock.Client, key string, e history.Event) {
	var lease *fencelock.Lease
	if !x.locked(&e, func(ctx context.Context) (int64, error) {
		var err error
		if lease, err = c.Lock(ctx, key); err != nil {
			return 0, err
		}
		return int64(lease.Token()), nil
	}) {
		return
	}
	well(x.t, "a write under a lease", x.add(key, x.db))
	x.note(history.Release, e)
	if err := lease.Release(soon(x.t)); err != nil && !errors.Is(err, fencelock.ErrUnavailable) {
		x.t.Errorf("Release: %v", err) // a busy machine may not answer in time
	}
	x.count("lease", key, true)
}

// TestRandomTransactionsAndLeases judges a random schedule by its history, and by the numbers: one
// that two have read is one too low.
func TestRandomTransactionsAndLeases(t *testing.T) {
	// A transaction of MariaDB that has to see what was committed before it got the lock must not
	// have read before; here each one reads after.
	eachTx(t, onServers, func(t *testing.T, s *store, a, b *sqllock.Backend, db *sql.DB) {
		db.SetMaxOpenConns(16)
		s.do(t, "CREATE TABLE app_n (k varchar(9) PRIMARY KEY, n integer)")
		s.do(t, "INSERT INTO app_n VALUES ('x', 0), ('y', 0)")
		x := &schedule{t: t, s: s, db: db, began: time.Now(), writes: map[string]int{}, ways: map[string]int{}}
		clients := []*fencelock.Client{
			testclient.New(t, s.backend(t), &fencelock.Options{HandOff: 1}),
			testclient.New(t, s.polling(t), &fencelock.Options{HandOff: 1}),
		}
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				for n := 0; x.goesOn() && !t.Failed(); n++ {
					key := []string{"x", "y"}[rand.IntN(2)]
					e := history.Event{Process: fmt.Sprint("process ", i), Key: key, Claim: fmt.Sprint(i, "/", n), Handle: "1"}
					if i%4 == 3 {
						x.lease(clients[i/4], key, e)
					} else {
						x.transact([]*sqllock.Backend{a, b}[i%2], key, e)
					}
				}
			})
		}
		wg.Wait()
		for _, c := range clients {
			c.Close()
		}
		slices.SortStableFunc(x.events, func(a, b history.Event) int { return int(a.At - b.At) })
		found, err := history.Check(x.events, history.Options{})
		must(t, err)
		for _, v := range found {
			t.Error(v)
		}
		for key, want := range x.writes {
			if n := ask[int](t, s, "SELECT n FROM app_n WHERE k = ?", key); n != want {
				t.Errorf("%d writes of %s were committed, and its number is %d", want, key, n)
			}
		}
		t.Logf("%v", x.ways)
		if len(x.ways) < 4 {
			t.Error("not every way of ending was taken")
		}
	})
}
