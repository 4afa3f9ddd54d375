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

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/history"
	"github.com/fencelock/fencelock/internal/testclient"
	"github.com/fencelock/fencelock/sqllock"
)

// TestSnapshotOlderThanTheLock: a transaction that would read what the holder before has not
// yet written is refused. As its first statement, Lock is well.
func TestSnapshotOlderThanTheLock(t *testing.T) {
	eachTx(t, []kind{postgres}, func(t *testing.T, s *store, a, b *sqllock.Backend, db *sql.DB) {
		for _, level := range []sql.IsolationLevel{sql.LevelRepeatableRead, sql.LevelSerializable} {
			o := &sql.TxOptions{Isolation: level}
			early := s.transaction(t, a, db, o)
			s.session(t, early)
			err := second(early.Lock(soon(t), "k"))
			says(t, fmt.Sprint("Lock after the first statement, ", level), err, fencelock.ErrInvalid, "first statement")
			until(t, "the claim is gone", func() bool { return inLine(t, b, "k") == 0 })
			must(t, early.Rollback())

			ordinary := hold(t, b, claim("k"))
			late := s.transaction(t, a, db, o)
			waits := behind(func() error { return second(late.Lock(soon(t), "k")) })
			until(t, "the transaction waits", func() bool { return inLine(t, b, "k") == 2 })
			s.do(t, "INSERT INTO app_x VALUES (1)")
			leave(t, b, ordinary)
			well(t, "Lock as the first statement", <-waits)
			var n int
			well(t, "a query", late.QueryRow("SELECT count(*) FROM app_x").Scan(&n))
			steps.Same(t, fmt.Sprint("rows of the holder before, which are seen, ", level), n, 1)
			usable(t, s, late)
			s.do(t, "DELETE FROM app_x")
		}
	})
}

// TestLockAfterASavepoint: on PostgreSQL a lock ends with the savepoint that it came after, and
// can be taken again. On MariaDB it stays, if the transaction has written before.
func TestLockAfterASavepoint(t *testing.T) {
	eachTx(t, txWays, func(t *testing.T, s *store, a, b *sqllock.Backend, db *sql.DB) {
		tx := s.transaction(t, a, db, nil)
		run(t, tx, "UPDATE app_x SET n = n + 1")
		run(t, tx, "SAVEPOINT one")
		first := take(t, tx, "k")
		run(t, tx, "ROLLBACK TO SAVEPOINT one")
		if s.dialect == sqllock.MySQL {
			busy(t, b, "k")
		} else {
			use(t, b, "k")
		}
		again := take(t, tx, "k")
		if (again == first) != (s.dialect == sqllock.MySQL) {
			t.Errorf("the lock after the rollback is the same: %v", again == first)
		}
		busy(t, b, "k")
		usable(t, s, tx)
		use(t, b, "k")
	})
}

// TestTransactionThatCannotHaveALock: what is wrong is said, and no claim stays.
func TestTransactionThatCannotHaveALock(t *testing.T) {
	eachTx(t, txWays, func(t *testing.T, s *store, a, b *sqllock.Backend, db *sql.DB) {
		refuses := func(what string, tx *sqllock.TxLocker, key, text string) {
			t.Helper()
			_, err := tx.Lock(soon(t), key)
			says(t, what, err, fencelock.ErrInvalid, text)
			until(t, "the claim is gone", func() bool { return inLine(t, b, "k") == 0 })
		}
		ended := s.transaction(t, a, db, nil)
		must(t, ended.Rollback())
		refuses("a transaction that has ended", ended.TxLocker, "k", "already been committed or rolled back")
		refuses("no transaction", sqllock.Tx(a, nil), "k", "no transaction was given")
		refuses("a key that is none", s.transaction(t, a, db, nil).TxLocker, "", "bytes of key")
		elsewhere := s.kind.storeOn(t, s.on)
		must(t, second(elsewhere.backendOn(t, elsewhere.db).Line(soon(t), "k")))
		refuses("a transaction elsewhere", elsewhere.transaction(t, a, elsewhere.open(t), nil).TxLocker, "k",
			"another database")
		if s.dialect == sqllock.MySQL {
			refuses("pgx", sqllock.TxPgx(a, pgx.Tx(nil)), "k", "no transaction was given")
		}
	})
}

// TestTransactionOnSQLiteNeedsNoLock: its write transactions exclude one another.
func TestTransactionOnSQLiteNeedsNoLock(t *testing.T) {
	only(t, sqlite, func(t *testing.T, s *store) {
		db := s.open(t)
		_, err := s.transaction(t, s.backendOn(t, db), db, nil).Lock(soon(t), "k")
		says(t, "Lock on SQLite", err, fencelock.ErrInvalid, "BEGIN IMMEDIATE")
	})
}

// TestSemaphoreRefusesATransaction: a transaction wants the key alone.
func TestSemaphoreRefusesATransaction(t *testing.T) {
	eachTx(t, txWays, func(t *testing.T, s *store, a, b *sqllock.Backend, db *sql.DB) {
		c := claim("k")
		c.Capacity, c.Weight = 3, 1
		permit := hold(t, b, c)
		tx := s.transaction(t, a, db, nil)
		steps.Is(t, "Lock of a semaphore", second(tx.Lock(soon(t), "k")), fencelock.ErrKind)
		leave(t, b, permit)
		usable(t, s, tx)
	})
}

// TestPgxTransaction is the same with native pgx.
func TestPgxTransaction(t *testing.T) {
	eachTx(t, []kind{postgres, pgBouncer}, func(t *testing.T, s *store, a, b *sqllock.Backend, _ *sql.DB) {
		pool, err := pgxpool.New(soon(t), s.dsn)
		must(t, err)
		defer pool.Close()
		for _, no := range []any{pool, (*pgx.Conn)(nil)} {
			if _, ok := no.(sqllock.PgxTx[pgx.Row]); ok {
				t.Errorf("a %T is taken for a transaction", no)
			}
		}
		var before int64
		err = pgx.BeginFunc(soon(t), pool, func(tx pgx.Tx) error {
			held, err := sqllock.TxPgx(a, tx).Lock(soon(t), "k")
			must(t, err)
			before = int64(held.Token())
			busy(t, b, "k")
			return errors.New("no")
		})
		if err == nil {
			t.Error("the transaction was not rolled back")
		}
		after := hold(t, b, claim("k"))
		steps.Rises(t, before, after.Token)
		leave(t, b, after)
	})
}

// schedule is a random one of transactions and Clients that want two keys. Under each key a
// number is read and written with one more, in two statements that do not lock what they read.
type schedule struct {
	t     *testing.T
	s     *store
	db    *sql.DB // of transactions, and of those who write under a lease
	began time.Time
	goes  *progress

	mu     sync.Mutex
	events []history.Event
	leave  map[int][]context.CancelFunc // of waits, by the number of events at which they give up
	writes map[string]int               // that were committed
	ways   map[string]int
}

func (x *schedule) note(op history.Op, e history.Event) {
	x.mu.Lock()
	defer x.mu.Unlock()
	e.Op, e.At = op, time.Since(x.began)
	x.events = append(x.events, e)
	for _, leave := range x.leave[len(x.events)] {
		leave()
	}
}

// wait returns the context of one who gives up when some more things have happened, however long they take.
func (x *schedule) wait() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(x.goes.ctx)
	x.mu.Lock()
	defer x.mu.Unlock()
	n := len(x.events) + 1 + rand.IntN(120)
	x.leave[n] = append(x.leave[n], cancel)
	return ctx, cancel
}

func (x *schedule) count(way, key string, committed bool) {
	x.goes.on()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.ways[way]++
	if committed {
		x.writes[key]++
	}
}

// goesOn reports that a spell is not over, or that a way was not taken yet.
func (x *schedule) goesOn() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return time.Since(x.began) < spell || len(x.ways) < 4
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
	ctx, cancel := x.wait()
	defer cancel()
	x.note(history.Enter, *e)
	token, err := lock(ctx)
	if err != nil {
		if !errors.Is(err, fencelock.ErrNotAcquired) && !errors.Is(err, context.Canceled) &&
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
		x := &schedule{t: t, s: s, db: db, began: time.Now(), goes: goes(t),
			leave: map[int][]context.CancelFunc{}, writes: map[string]int{}, ways: map[string]int{}}
		clients := []*fencelock.Client{
			testclient.New(t, s.backend(t), &fencelock.Options{HandOff: 1}),
			testclient.New(t, s.polling(t), &fencelock.Options{HandOff: 1}),
		}
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				for n := 0; x.goesOn() && x.goes.ctx.Err() == nil && !t.Failed(); n++ {
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
			steps.Same(t, "the number of "+key, ask[int](t, s, "SELECT n FROM app_n WHERE k = ?", key), want)
		}
		t.Logf("%v", x.ways)
	})
}
