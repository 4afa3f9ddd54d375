package quorum_test

import (
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	_ "modernc.org/sqlite" // the driver named "sqlite"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest"
	"github.com/fencelock/fencelock/internal/testclient"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/quorumlock"
	"github.com/fencelock/fencelock/sqllock"
)

// sqliteMember opens a file as a member.
func sqliteMember(t *testing.T, file string, m driver.Membership) *sqllock.Backend {
	t.Helper()
	db, err := sql.Open("sqlite", sqllock.SQLiteDSN(file))
	check(t, err)
	b := sqllock.New(db, sqllock.SQLite, &sqllock.Options{CreateTables: true, Member: &m})
	t.Cleanup(func() {
		b.Close()
		db.Close()
	})
	return b
}

func TestSQLiteMemberKeepsTheLaws(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "locks.db")
	check(t, sqliteMember(t, file, lasting).Initialise(t.Context()))
	view := func(t *testing.T) driver.Backend { return sqliteMember(t, file, lasting) }
	fresh := func(t *testing.T) driver.Backend {
		return sqliteMember(t, filepath.Join(t.TempDir(), "new.db"), lasting)
	}
	drivertest.Run(t, view, drivertest.Fresh(t, fresh), drivertest.Topics("Ballot", "Grant", "Token", "Expiry", "Leave", "Break"))
	drivertest.Model(t, view)
}

// A file remembers how long its quarantine lasts, also for processes that come later.
func TestSQLiteMemberWaitsOutItsQuarantine(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "locks.db")
	start := time.Now()
	vote := func() error {
		c := driver.Claim{Key: "k", ID: "an id", Capacity: driver.RW, Weight: driver.RW, TTL: time.Second, NoWait: true, Span: 1}
		c.Ballot = time.Now().UnixMicro()
		_, err := sqliteMember(t, file, membership).Enter(t.Context(), c)
		return err
	}
	for vote() != nil {
		if time.Since(start) > 2*membership.MaxTTL {
			t.Fatal(vote())
		}
		pause(100 * time.Millisecond)
	}
	if d := time.Since(start); d < membership.MaxTTL {
		t.Errorf("a new file took a ballot after %v; want none for %v", d, membership.MaxTTL)
	}
	other := driver.Membership{Skew: 2 * membership.Skew}
	db, err := sql.Open("sqlite", sqllock.SQLiteDSN(file))
	check(t, err)
	defer db.Close()
	if err := sqllock.New(db, sqllock.SQLite, &sqllock.Options{Member: &other}).Initialise(t.Context()); err == nil {
		t.Error("a file took another Membership than the one that it remembers")
	}
}

// mixture is a server, a database and a file: the members of a quorum.
type mixture struct{ redis, postgres, file string }

func mix(t *testing.T, redis, postgres *testserver.Server) mixture {
	t.Helper()
	m := mixture{redis.Addr(), newDatabase(t, postgres), filepath.Join(t.TempDir(), "locks.db")}
	check(t, m.open(t).Initialise(t.Context()))
	return m
}

func (m mixture) open(t *testing.T) *quorumlock.Backend {
	t.Helper()
	r, end := member(m.redis, lasting)
	b := quorumlock.New([]driver.Backend{r, postgresMember(t, m.postgres, lasting), sqliteMember(t, m.file, lasting)}, nil)
	t.Cleanup(func() {
		b.Close()
		end()
	})
	return b
}

// A quorum of Redis, PostgreSQL and SQLite keeps the laws, and a lock that is held
// outlives the loss of any one of them.
func TestMixedQuorum(t *testing.T) {
	t.Parallel()
	m := mix(t, testserver.Redis(t), postgresServer(t))
	t.Run("Laws", func(t *testing.T) {
		t.Parallel()
		drivertest.Run(t, func(t *testing.T) driver.Backend { return m.open(t) }, drivertest.Lease(2*time.Second),
			drivertest.Topics("Grant", "Token", "Expiry", "Leave", "Break"))
	})
	t.Run("Model", func(t *testing.T) {
		t.Parallel()
		m := mix(t, testserver.Redis(t), postgresServer(t))
		drivertest.Model(t, func(t *testing.T) driver.Backend { return m.open(t) })
	})
	for _, name := range []string{"WithoutRedis", "WithoutPostgres", "WithoutSQLite"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redis, postgres := testserver.Redis(t), postgresServer(t)
			if name == "WithoutPostgres" {
				postgres = testserver.Postgres(t)
			}
			m := mix(t, redis, postgres)
			c := testclient.New(t, m.open(t), &fencelock.Options{TTL: lease})
			defer c.Close()
			l := lock(t, c, "k")
			switch name {
			case "WithoutRedis":
				check(t, redis.Kill())
			case "WithoutPostgres":
				check(t, postgres.Stop())
			case "WithoutSQLite":
				occupy(t, m.file)
			}
			pause(2 * lease)
			check(t, l.Err())
			next := testclient.New(t, m.open(t), &fencelock.Options{TTL: lease})
			defer next.Close()
			if _, err := next.TryLock(t.Context(), "k"); err == nil {
				t.Error("a lock that is held was granted again")
			}
			check(t, l.Release(t.Context()))
			rises(t, l.Token(), free(t, next, "k", 10*time.Second).Token())
		})
	}
}

// occupy keeps everybody else from writing to a file.
func occupy(t *testing.T, file string) {
	t.Helper()
	db, err := sql.Open("sqlite", sqllock.SQLiteDSN(file))
	check(t, err)
	tx, err := db.Begin() // SQLiteDSN takes the write lock with it, or the write below does
	check(t, err)
	_, err = tx.Exec("DELETE FROM fencelock_tombstone")
	check(t, err)
	t.Cleanup(func() {
		tx.Rollback()
		db.Close()
	})
}
