package sql_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/sqllock"
)

// txWays are the ways to a database whose transactions can have locks.
var txWays = append(rarely(pgBouncer), onServers...)

// transaction is one of a program, and what takes locks for it.
type transaction struct {
	*sql.Tx
	*sqllock.TxLocker
}

func (s *store) transaction(t testing.TB, b *sqllock.Backend, db *sql.DB, o *sql.TxOptions) *transaction {
	t.Helper()
	// Its context is not the test's: that would roll it back.
	tx, err := db.BeginTx(context.Background(), o)
	must(t, err)
	t.Cleanup(func() { _ = tx.Rollback() })
	return &transaction{Tx: tx, TxLocker: sqllock.Tx(b, tx)}
}

// session is the number of the session that a transaction or a pool of one connection is in. To ask
// is a statement of it.
func (s *store) session(t testing.TB, on interface {
	QueryRowContext(context.Context, string, ...any) *sql.Row
},
) (id int64) {
	t.Helper()
	must(t, on.QueryRowContext(soon(t), s.sql("SELECT {session}")).Scan(&id))
	return id
}

// kill ends a session, as an administrator or a failover does.
func (s *store) kill(t testing.TB, id int64) {
	t.Helper()
	if s.dialect == sqllock.MySQL {
		s.do(t, "KILL ?", id)
		return
	}
	s.do(t, "SELECT pg_terminate_backend(?)", id)
}

// ways are how a transaction ends.
var ways = map[string]func(t testing.TB, s *store, tx *transaction){
	"commit":   func(t testing.TB, _ *store, tx *transaction) { must(t, tx.Commit()) },
	"rollback": func(t testing.TB, _ *store, tx *transaction) { must(t, tx.Rollback()) },
	"kill": func(t testing.TB, s *store, tx *transaction) {
		s.kill(t, s.session(t, tx))
		until(t, "COMMIT fails", func() bool { return tx.Commit() != nil })
	},
}

// take must get a lock now.
func take(t testing.TB, tx *transaction, key string) *sqllock.TxLock {
	t.Helper()
	held, err := tx.TryLock(soon(t), key)
	if err != nil {
		t.Fatalf("a try in a transaction: %v", err)
	}
	return held
}

// refused must not get it, and be told who has it.
func refused(t testing.TB, tx *transaction, key string) {
	t.Helper()
	var head *driver.BusyError
	_, err := tx.TryLock(soon(t), key)
	if !errors.Is(err, fencelock.ErrNotAcquired) || !errors.As(err, &head) || head.Owner == "" || head.Token == 0 {
		t.Fatalf("a try in a transaction answered %v; want that it is held, and by whom", err)
	}
}

// usable must still be able to write.
func usable(t testing.TB, s *store, tx *transaction) {
	t.Helper()
	_, err := tx.Exec(s.sql("UPDATE app_x SET n = n + 1"))
	well(t, "a statement of the transaction", err)
	well(t, "COMMIT", tx.Commit())
}

// eachTx runs a test with two Backends, as two processes have, and a pool for transactions.
func eachTx(t *testing.T, kinds []kind, f func(t *testing.T, s *store, a, b *sqllock.Backend, db *sql.DB)) {
	t.Helper()
	each(t, kinds, func(t *testing.T, s *store) {
		a, b := s.backend(t), s.backend(t)
		use(t, a, "first")
		use(t, b, "first")
		s.do(t, "CREATE TABLE app_x (n integer)")
		f(t, s, a, b, s.open(t))
	})
}

// TestTransactionsExcludeOneAnother has the lock end in each way, while another transaction
// waits. Tokens rise, also over a rollback.
func TestTransactionsExcludeOneAnother(t *testing.T) {
	eachTx(t, txWays, func(t *testing.T, s *store, a, b *sqllock.Backend, db *sql.DB) {
		last := int64(0)
		for how, end := range ways {
			first, second := s.transaction(t, a, db, nil), s.transaction(t, b, db, nil)
			held := take(t, first, "k")
			refused(t, second, "k")
			next := behind(func() *sqllock.TxLock {
				held, err := second.Lock(soon(t), "k")
				well(t, "Lock behind a transaction", err)
				return held
			})
			until(t, "the second one waits", func() bool { return inLine(t, a, "k") == 2 })
			end(t, s, first)
			got := <-next
			if got == nil {
				t.Fatalf("%s: no lock", how)
			}
			steps.Rises(t, last, int64(held.Token()))
			steps.Rises(t, held.Token(), got.Token())
			last = int64(got.Token())
			steps.Same(t, "the key", got.Key(), "k")
			usable(t, s, second)
		}
	})
}

func inLine(t testing.TB, b *sqllock.Backend, key string) int {
	t.Helper()
	l, err := b.Line(soon(t), key)
	must(t, err)
	return len(l.Claims)
}

// TestClaimsAndTransactionsExcludeEachOther has ordinary claims and transactions hold and wait
// in turn. A transaction that has ended frees the lock for a try at once.
func TestClaimsAndTransactionsExcludeEachOther(t *testing.T) {
	eachTx(t, txWays, func(t *testing.T, s *store, a, b *sqllock.Backend, db *sql.DB) {
		last := int64(0)
		rises := func(token int64) {
			t.Helper()
			steps.Rises(t, last, token)
			last = token
		}
		for _, end := range ways {
			tx := s.transaction(t, a, db, nil)
			ordinary := hold(t, b, claim("k"))
			rises(ordinary.Token)
			refused(t, tx, "k")
			waits := behind(func() error { return second(tx.Lock(soon(t), "k")) })
			until(t, "the transaction waits", func() bool { return inLine(t, b, "k") == 2 })
			after := wait(t, b, reader("k"))
			leave(t, b, ordinary)
			well(t, "Lock behind a claim", <-waits)
			l, err := a.Line(soon(t), "k")
			must(t, err)
			if len(l.Claims) != 2 || !l.Claims[0].Granted || l.Claims[1].Granted || l.Claims[0].Left <= 0 {
				t.Errorf("the line is %+v; want the transaction, and one who waits", l.Claims)
			}
			rises(l.Claims[0].Token)
			busy(t, b, "k")
			end(t, s, tx)
			rises(granted(t, b, after).Token)
			leave(t, b, after)

			tx = s.transaction(t, a, db, nil)
			rises(int64(take(t, tx, "k").Token()))
			busy(t, b, "k")
			end(t, s, tx)
			var next driver.Ticket
			until(t, "a try succeeds", func() (ok bool) { // a session that is killed goes on for a moment
				next, err = b.Enter(soon(t), noWait(claim("k")))
				return err == nil
			})
			rises(next.Token)
			leave(t, b, next)
		}
		empty(t, b)
	})
}

// TestTransactionHoldsUpNoOtherKey has a transaction hold a key for two leases of another
// claim, while the Backend of that claim, which has one connection, wants the key in all ways.
func TestTransactionHoldsUpNoOtherKey(t *testing.T) {
	eachTx(t, txWays, func(t *testing.T, s *store, a, _ *sqllock.Backend, db *sql.DB) {
		one := s.backendOn(t, s.one(t))
		kept := hold(t, one, claim("other"))
		tx := s.transaction(t, a, db, nil)
		take(t, tx, "k")
		w := wait(t, one, claim("k"))
		done := behind(func() driver.Ticket { return granted(t, one, w) })
		began := time.Now()
		for n := 0; n < 20 || time.Since(began) < spell; n++ { // while the line of k is read again and again
			busy(t, one, "k")
			renewed(t, one, w, kept)
			use(t, one, "third")
			pause(20 * time.Millisecond)
		}
		leave(t, one, kept)
		usable(t, s, tx)
		leave(t, one, <-done)
		empty(t, one)
	})
}

// TestTransactionOutlivesALock has ctx end while a transaction waits: it can go on, and its place is free.
func TestTransactionOutlivesALock(t *testing.T) {
	eachTx(t, txWays, func(t *testing.T, s *store, a, b *sqllock.Backend, db *sql.DB) {
		ordinary := hold(t, b, claim("k"))
		tx := s.transaction(t, a, db, nil)
		ctx, cancel := context.WithCancel(soon(t))
		waits := behind(func() error { return second(tx.Lock(ctx, "k")) })
		until(t, "the transaction waits", func() bool { return inLine(t, b, "k") == 2 })
		cancel()
		if err := <-waits; !errors.Is(err, fencelock.ErrNotAcquired) || !errors.Is(err, context.Canceled) {
			t.Errorf("Lock answered %v; want that ctx ended in line", err)
		}
		var seen time.Time // in line for the last time
		var left time.Duration
		until(t, "its claim is gone", func() bool {
			sent := time.Now()
			l, err := b.Line(soon(t), "k")
			must(t, err)
			if len(l.Claims) == 2 {
				seen, left = sent, l.Claims[1].Left
			}
			return len(l.Claims) == 1
		})
		if !seen.IsZero() && time.Since(seen) > left {
			t.Error("its lease ran out; want its claim given up")
		}
		steps.Is(t, "Lock with a ctx that has ended", second(tx.Lock(ctx, "k")), context.Canceled)
		usable(t, s, tx)
		leave(t, b, ordinary)
	})
}

// TestTransactionsInOppositeOrder has three transactions wait for each other: one of them is told
// so, and when it is rolled back, another one gets what it waits for.
func TestTransactionsInOppositeOrder(t *testing.T) {
	eachTx(t, txWays, func(t *testing.T, s *store, a, b *sqllock.Backend, db *sql.DB) {
		keys := []string{"x", "y", "z"}
		txs := make([]*transaction, len(keys))
		for i, key := range keys {
			txs[i] = s.transaction(t, []*sqllock.Backend{a, b}[i%2], db, nil)
			take(t, txs[i], key)
		}
		type end struct {
			tx  *transaction
			err error
		}
		ends := make(chan end, len(keys))
		for i, tx := range txs {
			go func() { ends <- end{tx, second(tx.Lock(soon(t), keys[(i+1)%len(keys)]))} }()
		}
		victims := 0
		for range keys {
			switch e := <-ends; {
			case e.err == nil:
				usable(t, s, e.tx)
			case errors.Is(e.err, fencelock.ErrDeadlock):
				victims++
				well(t, "a statement of the victim", second(e.tx.Exec(s.sql("UPDATE app_x SET n = n + 1"))))
				must(t, e.tx.Rollback())
			default:
				t.Errorf("Lock in a circle answered %v", e.err)
			}
		}
		if victims == 0 {
			t.Error("nobody was told of the deadlock")
		}
		for _, key := range keys { // a claim that arrives meanwhile looks after a tenth of a second
			leave(t, a, granted(t, a, enter(t, a, claim(key))))
		}
	})
}

// TestTransactionsInALineAreNoDeadlock: who waits behind others is not told of one.
func TestTransactionsInALineAreNoDeadlock(t *testing.T) {
	eachTx(t, txWays, func(t *testing.T, s *store, a, b *sqllock.Backend, db *sql.DB) {
		one, two := s.transaction(t, a, db, nil), s.transaction(t, b, db, nil)
		take(t, one, "x")
		take(t, two, "y")
		ctx, cancel := context.WithCancel(soon(t))
		gaveUp := behind(func() error { return second(one.Lock(ctx, "y")) })
		until(t, "the first transaction has looked, and renewed its claim", func() bool {
			return ask[int](t, s, "SELECT count(*) FROM fencelock_lease WHERE of_key = 'y'") == 2
		})
		cancel()
		if err := <-gaveUp; !errors.Is(err, fencelock.ErrNotAcquired) ||
			!errors.Is(err, context.Canceled) || !errors.As(err, new(*driver.BusyError)) {
			t.Errorf("Lock behind another transaction answered %v; want that ctx ended, and who holds it", err)
		}
		// The first one has given up, which goes on behind its call: it waits for nobody.
		until(t, "its claim is gone", func() bool { return inLine(t, b, "y") == 1 })
		waits := behind(func() error { return second(two.Lock(soon(t), "x")) })
		until(t, "the second transaction waits", func() bool { return inLine(t, a, "x") == 2 })
		pause(time.Second) // it looks for a deadlock meanwhile
		usable(t, s, one)
		well(t, "Lock behind a transaction that has ended", <-waits)
		usable(t, s, two)
	})
}

// TestLockTwiceInATransaction takes one lock twice, and two locks.
func TestLockTwiceInATransaction(t *testing.T) {
	eachTx(t, txWays, func(t *testing.T, s *store, a, b *sqllock.Backend, db *sql.DB) {
		tx := s.transaction(t, a, db, nil)
		x := take(t, tx, "x")
		y := take(t, tx, "y")
		if again := take(t, tx, "x"); again != x || y == x {
			t.Errorf("the second lock of a key is another one")
		}
		busy(t, b, "x")
		busy(t, b, "y")
		usable(t, s, tx)
		use(t, b, "x")
		use(t, b, "y")
	})
}

// TestEndedWakesTheNextAtOnce: it does nothing before the end.
func TestEndedWakesTheNextAtOnce(t *testing.T) {
	eachTx(t, txWays, func(t *testing.T, s *store, a, _ *sqllock.Backend, db *sql.DB) {
		tx := s.transaction(t, a, db, nil)
		held := take(t, tx, "k")
		next := wait(t, a, claim("k"))
		must(t, held.Ended(soon(t)))
		busy(t, a, "k")
		must(t, tx.Commit())
		must(t, held.Ended(soon(t)))
		// The step itself has granted it: nothing has to be looked for.
		if got := enter(t, a, next.Claim); !got.Granted {
			t.Error("Ended after COMMIT has not granted the lock to the next one")
		}
		leave(t, a, next)
	})
}

// TestBrokenTransaction: an operator's break lets the next one in, and the transaction goes on.
func TestBrokenTransaction(t *testing.T) {
	eachTx(t, txWays, func(t *testing.T, s *store, a, b *sqllock.Backend, db *sql.DB) {
		tx := s.transaction(t, a, db, nil)
		held := take(t, tx, "k")
		must(t, b.Break(soon(t), "k", int64(held.Token()), driver.Break{Reason: "why"}))
		use(t, b, "k")
		usable(t, s, tx)
		gone(t, "Break of what is gone", b.Break(soon(t), "k", int64(held.Token()), driver.Break{Reason: "why"}))
	})
}
