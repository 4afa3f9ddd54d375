package sql_test

import (
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/drivertest/steps"
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
			if !errors.Is(err, fencelock.ErrInvalid) || !strings.Contains(err.Error(), "first statement") {
				t.Errorf("%v: Lock after the first statement answered %v; want that it is too late", level, err)
			}
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
			if n != 1 {
				t.Errorf("%v: the transaction sees %d rows; want what the holder before has written", level, n)
			}
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
			if !errors.Is(err, fencelock.ErrInvalid) || !strings.Contains(err.Error(), text) {
				t.Errorf("%s: Lock answered %v; want %q", what, err, text)
			}
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
		if !errors.Is(err, fencelock.ErrInvalid) || !strings.Contains(err.Error(), "BEGIN IMMEDIATE") {
			t.Errorf("Lock on SQLite answered %v", err)
		}
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
		if after.Token <= before {
			t.Errorf("token %d after %d", after.Token, before)
		}
		leave(t, b, after)
	})
}
