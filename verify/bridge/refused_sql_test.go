package bridge

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/bridge"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/memlock"
	"github.com/fencelock/fencelock/sqllock/foreign"
)

// refuses wants a refusal of the server to say that nothing happened, whether it stays, to which lock, and what to do.
func refuses(t *testing.T, what string, lock bridge.ForeignLock, stays bool, says string) {
	t.Helper()
	c := client(t, bridge.New(bridge.Foreign(lock), memlock.New()), lease)
	_, err := c.TryLock(t.Context(), "order/42")
	if !errors.Is(err, driver.ErrRefused) || errors.Is(err, driver.ErrPermanent) != stays {
		t.Errorf("%s, %s: TryLock returned %v; want a refusal, for good: %v", what, lock.Name(), err, stays)
	}
	for _, text := range []string{says, `"order/42"`} {
		if !strings.Contains(fmt.Sprint(err), text) {
			t.Errorf("%s, %s: TryLock returned %v; want it to say %q", what, lock.Name(), err, text)
		}
	}
	if strings.Contains(fmt.Sprint(err), "wr0ng") {
		t.Errorf("%s, %s: the error tells the password: %v", what, lock.Name(), err)
	}
}

func do(t *testing.T, db *sql.DB, statements ...string) {
	t.Helper()
	for _, s := range statements {
		if _, err := db.ExecContext(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

const pgTable = `CREATE TABLE shedlock (name VARCHAR(64) PRIMARY KEY, lock_until TIMESTAMP NOT NULL,
	locked_at TIMESTAMP NOT NULL, locked_by VARCHAR(255) NOT NULL)`

func TestPostgresThatRefusesAForeignLockHasDoneNothing(t *testing.T) {
	t.Parallel()
	primary := testserver.Postgres(t, testserver.Config("wal_level = replica", "max_wal_senders = 4"))
	admin := open(t, "pgx", primary.URL())
	do(t, admin, pgTable, "CREATE ROLE plain LOGIN", "CREATE ROLE crowd LOGIN CONNECTION LIMIT 0",
		"REVOKE EXECUTE ON FUNCTION pg_try_advisory_lock(bigint) FROM PUBLIC")
	standby := testserver.PostgresStandby(t, primary, primary.Addr())
	secret := testserver.Postgres(t, testserver.Password("right"))
	as := func(s *testserver.Server, user *url.Userinfo, database string) *sql.DB {
		u, err := url.Parse(s.URL())
		steps.Must(t, err)
		u.User, u.Path = user, database
		return open(t, "pgx", u.String())
	}
	closed := open(t, "pgx", primary.URL())
	closed.Close()
	for _, tt := range []struct {
		what  string
		db    *sql.DB
		table string
		stays bool
		says  string // empty if the lock of a session is not refused
		shed  string
	}{
		{"no table", admin, "jobs.locks", true, "", "the table jobs.locks is missing"},
		{"no right", as(primary, url.User("plain"), "/postgres"), "", true, "GRANT EXECUTE ON FUNCTION pg_try_advisory_lock",
			"GRANT SELECT, INSERT, UPDATE ON shedlock"},
		{"no database", as(primary, url.User("postgres"), "/none"), "", true, "no such database", "no such database"},
		{"wrong password", as(secret, url.UserPassword("postgres", "wr0ng"), "/postgres"), "", true, "does not let us in",
			"does not let us in"},
		{"too many connections", as(primary, url.User("crowd"), "/postgres"), "", false, "too many connections",
			"too many connections"},
		{"a standby", open(t, "pgx", standby.URL()), "", false, "", "connect to the primary"},
		{"a closed database", closed, "", true, "the program has closed the database", "the program has closed the database"},
	} {
		refuses(t, tt.what, foreign.ShedLock(tt.db, foreign.Postgres, &foreign.ShedLockOptions{Table: tt.table}), tt.stays, tt.shed)
		if tt.says != "" {
			refuses(t, tt.what, foreign.Advisory(tt.db, nil), tt.stays, tt.says)
		}
	}
}

func TestMariaDBThatRefusesAForeignLockHasDoneNothing(t *testing.T) {
	t.Parallel()
	server := testserver.MariaDB(t)
	admin := dbOf(t, server, "root")
	do(t, admin, strings.ReplaceAll(pgTable, "TIMESTAMP", "TIMESTAMP(3)"),
		"CREATE USER plain", "GRANT CREATE TEMPORARY TABLES ON *.* TO plain", "CREATE USER jobs IDENTIFIED BY 'open'",
		"GRANT ALL ON *.* TO jobs", "REVOKE SUPER, READ ONLY ADMIN ON *.* FROM jobs", "CREATE USER crowd",
		"GRANT ALL ON *.* TO crowd WITH MAX_USER_CONNECTIONS 1")
	shed := func(db *sql.DB, table string) bridge.ForeignLock {
		return foreign.ShedLock(db, foreign.MySQL, &foreign.ShedLockOptions{Table: table})
	}
	refuses(t, "no table", shed(admin, "none"), true, "the table none is missing")
	refuses(t, "no right", shed(dbOf(t, server, "plain"), ""), true, "GRANT SELECT, INSERT, UPDATE ON shedlock")
	for _, lock := range []bridge.ForeignLock{shed(dbOf(t, server, "jobs:wr0ng"), ""), foreign.GetLock(dbOf(t, server, "jobs:wr0ng"), "")} {
		refuses(t, "wrong password", lock, true, "refuses the user or the password")
	}
	crowd := dbOf(t, server, "crowd")
	steps.Must(t, steps.ErrOf(crowd.Conn(t.Context())))
	for _, lock := range []bridge.ForeignLock{shed(dbOf(t, server, "crowd"), ""), foreign.GetLock(dbOf(t, server, "crowd"), "")} {
		refuses(t, "too many connections", lock, false, "max_user_connections")
	}
	do(t, admin, "SET GLOBAL read_only = 1")
	refuses(t, "read-only", shed(dbOf(t, server, "jobs:open"), ""), false, "connect to the primary")
	refuses(t, "read-only", foreign.GetLock(admin, ""), false, "connect to the primary")
}

// The primary of GET_LOCK becomes a replica under its sessions. It would go on granting locks, which exclude nobody on
// the new primary.
func TestGetLockIsNotGrantedByAServerThatIsReadOnly(t *testing.T) {
	t.Parallel()
	db := mariaDB(t)
	l := foreign.GetLock(db, "")
	step := func(want bool, refused bool, f func(context.Context, string, string, time.Duration) (bool, error), id string) {
		t.Helper()
		got, err := f(t.Context(), "order/42", id, lease)
		if got != want || errors.Is(err, driver.ErrRefused) != refused || err != nil && !refused {
			t.Errorf("%s got %v, %v; want %v, and a refusal: %v", id, got, err, want, refused)
		}
	}
	step(true, false, l.Try, "holder")
	step(false, false, l.Try, "waiter")
	step(false, false, l.Try, "waiter") // it waits in the line of the server
	do(t, db, "SET GLOBAL read_only = 1")
	step(false, true, l.Renew, "holder")
	do(t, db, "SET GLOBAL read_only = 0")
	step(true, false, l.Renew, "holder") // nobody else has got it
	do(t, db, "SET GLOBAL read_only = 1")
	if had, err := l.Release(t.Context(), "order/42", "holder"); !had || err != nil {
		t.Fatal(had, err)
	}
	step(false, false, l.Try, "waiter") // its turn came, and it has left the line
	step(false, true, l.Try, "waiter")
	var free bool
	if err := db.QueryRowContext(t.Context(), `SELECT IS_FREE_LOCK('order/42')`).Scan(&free); err != nil || !free {
		t.Errorf("the lock of a claim that was refused is free: %v, %v", free, err)
	}
}

// After a failover without a cut a connection of the pool leads to the old primary. The next try goes over another one.
func TestShedLockGivesUpAConnectionThatIsReadOnly(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		db       *sql.DB
		d        foreign.Dialect
		readOnly string
	}{
		{postgresDB(t), foreign.Postgres, "SET default_transaction_read_only = on"},
		{mariaDB(t), foreign.MySQL, "SET SESSION TRANSACTION READ ONLY"},
	} {
		l := shedlock(t, c.db, c.d).lock
		c.db.SetMaxOpenConns(1)
		do(t, c.db, c.readOnly)
		if _, err := l.Try(t.Context(), "order/42", "id", lease); !errors.Is(err, driver.ErrRefused) {
			t.Errorf("Try at a server that is read-only: %v; want a refusal", err)
		}
		if got, err := l.Try(t.Context(), "order/42", "id", lease); !got || err != nil {
			t.Errorf("Try again: %v, %v", got, err)
		}
	}
}
