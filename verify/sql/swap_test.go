package sql_test

import (
	"testing"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/sqllock"
)

// TestLocksNeedFourRights: who uses the tables may read and write rows, and nothing else.
func TestLocksNeedFourRights(t *testing.T) {
	each(t, onServers, func(t *testing.T, s *store) {
		user := s.name + "_plain"
		create, drop := []string{
			"CREATE ROLE " + user + " LOGIN PASSWORD 's3cret'",
			"GRANT SELECT, INSERT, UPDATE, DELETE ON fencelock_swap, fencelock_lease, fencelock_history TO " + user,
			"GRANT SELECT ON fencelock_meta TO " + user,
		}, []string{"DROP OWNED BY " + user, "DROP ROLE " + user}
		if s.dialect == sqllock.MySQL {
			create = []string{
				"CREATE USER " + user + " IDENTIFIED BY 's3cret'",
				"GRANT SELECT, INSERT, UPDATE, DELETE ON " + s.name + ".* TO " + user,
			}
			drop = []string{"DROP USER " + user}
		}
		use(t, s.backend(t), "tables")
		for _, text := range create {
			s.do(t, text)
		}
		t.Cleanup(func() {
			for _, text := range drop {
				s.do(t, text)
			}
		})
		dsn := s.as(t, user, "s3cret")
		drivertest.Model(t, func(t *testing.T) driver.Backend { return s.new(t, s.openDSN(t, dsn), nil) }, 1)
	})
}

// TestTransactionThatWasLeftOpen: a program has given a connection back to the pool with a transaction on
// it, which sees the database as it was. A claim that enters over that connection is in line for everybody, and
// stays if the connection is closed.
func TestTransactionThatWasLeftOpen(t *testing.T) {
	each(t, onServers, func(t *testing.T, s *store) {
		others, db := s.polling(t), s.open(t) // of a pool without a bound each step takes the last one given back
		b := s.backendOn(t, db)
		leaveOpen := func() {
			conn, err := db.Conn(soon(t))
			must(t, err)
			run(t, conn, "BEGIN")
			_, err = conn.ExecContext(soon(t), "SELECT COUNT(*) FROM fencelock_swap")
			must(t, err)
			conn.Close()
		}
		leave(t, b, hold(t, b, claim("warm")))
		for _, key := range []string{"new", "used", "used"} {
			leaveOpen()
			held := hold(t, b, claim(key))
			busy(t, others, key)
			leaveOpen()
			renewed(t, b, held)
			leaveOpen()
			leave(t, b, held)
			leave(t, others, hold(t, others, claim(key)))
		}
		leaveOpen()
		held := hold(t, b, claim("kept"))
		db.Close()
		busy(t, others, "kept")
		leave(t, others, held)
	})
}

// TestMarkOfAnotherProcess: a process has left a line empty, and takes the lock again by a short statement. Another one
// has left a mark meanwhile, which it must be told.
func TestMarkOfAnotherProcess(t *testing.T) {
	polled(t, all, func(t *testing.T, s *store, b *sqllock.Backend) {
		other := s.polling(t)
		leave(t, b, hold(t, b, claim("k")))
		must(t, other.Leave(soon(t), hold(t, other, claim("k")), driver.Exit{Mark: "done"}))
		held := hold(t, b, claim("k"))
		steps.Same(t, "the mark", held.Mark, "done")
		leave(t, b, held)
	})
}

// TestAnIdOfNoBytesIsNobodys: a line that keeps no claim has no ID, which is not an empty one.
func TestAnIdOfNoBytesIsNobodys(t *testing.T) {
	polled(t, []kind{mariaDB.with("ClientFoundRows", "clientFoundRows=true")}, func(t *testing.T, s *store, b *sqllock.Backend) {
		ticket := hold(t, b, claim("k"))
		leave(t, b, ticket)
		ticket.ID = ""
		gone(t, "Renew without an ID", renew(b, soon(t), ticket))
	})
}
