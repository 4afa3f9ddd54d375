package sql_test

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/sqllock"
)

// refusal must be ErrPermanent from every call, mention words, and no password.
func refusal(t *testing.T, b *sqllock.Backend, words ...string) {
	t.Helper()
	for name, call := range verbs(b, driver.Ticket{Claim: claim("k"), Token: 1}) { // which is of nobody
		err := call(soon(t))
		says(t, name, err, driver.ErrPermanent, words...)
		if strings.Contains(fmt.Sprint(err), "s3cret") {
			t.Errorf("%s tells the password: %v", name, err)
		}
	}
}

// schemaCommand is what the command is called with for the tables of a dialect.
func (s *store) schemaCommand() string {
	return "fencelock schema " + map[sqllock.Dialect]string{
		sqllock.SQLite: "sqlite", sqllock.Postgres: "postgres", sqllock.MySQL: "mysql"}[s.dialect]
}

func TestWhatCannotWorkSaysSo(t *testing.T) {
	each(t, all, func(t *testing.T, s *store) {
		missing := []string{"missing", s.schemaCommand()}
		t.Run("MissingTables", func(t *testing.T) {
			refusal(t, s.new(t, s.open(t), nil), append(missing, "CreateTables")...)
		})
		t.Run("TablesDroppedLater", func(t *testing.T) {
			b := s.polling(t)
			hold(t, b, claim("k"))
			if s.dialect == sqllock.Postgres {
				s.do(t, "DROP SCHEMA public CASCADE")
				s.do(t, "CREATE SCHEMA public")
			}
			for _, table := range column[string](t, s.db, s.sql("{tables}")) {
				s.do(t, "DROP TABLE "+table)
			}
			refusal(t, b, missing...)
		})
		t.Run("Prefix", func(t *testing.T) {
			prefixes := []string{"a b", "x;", `x"`, "x`", "1x", "ä", strings.Repeat("x", 33), "x'--"}
			if s.dialect == sqllock.SQLite {
				prefixes = append(prefixes, "sqlite_x")
			}
			for _, prefix := range prefixes {
				o := &sqllock.Options{Prefix: prefix, CreateTables: true}
				refusal(t, s.new(t, s.open(t), o), "prefix")
				if _, err := sqllock.Schema(s.dialect, o); err == nil {
					t.Errorf("Schema took the prefix %q", prefix)
				}
			}
		})
		t.Run("OtherFormat", func(t *testing.T) {
			use(t, s.polling(t), "k")
			s.do(t, "UPDATE fencelock_meta SET value = '7' WHERE name = 'format'")
			refusal(t, s.polling(t), "format", "7", "format 3")
			s.do(t, "DELETE FROM fencelock_meta WHERE name = 'format'")
			refusal(t, s.new(t, s.open(t), nil), "format")
		})
		t.Run("NoDatabase", func(t *testing.T) { refusal(t, s.new(t, nil, nil), "database") })
		t.Run("ClosedDatabase", func(t *testing.T) {
			s := s.kind.store(t)
			db := s.open(t)
			b := s.backendOn(t, db)
			use(t, b, "k")
			db.Close()
			refusal(t, b, "closed")
		})
	})
}

// TestTablesOfTheFormatBeforeAreRefused: a release before this one has made tables, with other contents.
func TestTablesOfTheFormatBeforeAreRefused(t *testing.T) {
	each(t, onServers, func(t *testing.T, s *store) {
		s.do(t, "CREATE TABLE fencelock_meta (name varchar(32) PRIMARY KEY, value varchar(99))")
		s.do(t, "INSERT INTO fencelock_meta VALUES ('format', '2'), ('swept', '')")
		refusal(t, s.polling(t), "have format 2", "knows format 3", "another Prefix")
		use(t, s.new(t, s.open(t), &sqllock.Options{Prefix: "app_", CreateTables: true}), "k")
	})
}

// TestMissingTablesAreNotRemembered runs what Schema returns by hand, twice, and with
// another prefix.
func TestMissingTablesAreNotRemembered(t *testing.T) {
	each(t, all, func(t *testing.T, s *store) {
		o := options(s.dialect, s.pooled, s.dsn)
		o.Prefix, o.CreateTables = "App_", s.dialect == sqllock.MySQL
		b := s.new(t, s.open(t), &sqllock.Options{Prefix: o.Prefix})
		refusal(t, b, "missing")
		if !o.CreateTables {
			ddl, err := sqllock.Schema(s.dialect, o)
			must(t, err)
			s.do(t, ddl)
			s.do(t, ddl)
		}
		use(t, s.new(t, s.open(t), o), "k")
		mine := hold(t, b, claim("k"))
		// Another set of tables in the same database is another set of locks.
		use(t, s.polling(t), "k")
		leave(t, b, mine)
		empty(t, b)
	})
}

func TestDialectsAreChecked(t *testing.T) {
	only(t, sqlite, func(t *testing.T, s *store) {
		refusal(t, sqllock.New(s.db, 0, nil), "dialect")
		if _, err := sqllock.Schema(77, nil); err == nil {
			t.Error("Schema took a dialect that does not exist")
		}
		refusal(t, s.new(t, s.db, &sqllock.Options{Listen: listenAfter(nil)}), "Listen")
	})
}

func TestFilesThatCannotWork(t *testing.T) {
	only(t, sqlite, func(t *testing.T, s *store) {
		at := func(path, tail string) *sqllock.Backend {
			return s.backendOn(t, s.openDSN(t, "file:"+path+tail))
		}
		letter := filepath.Join(t.TempDir(), "letter")
		must(t, os.WriteFile(letter, []byte(strings.Repeat("this is a letter to my mother\n", 100)), 0o600))
		refusal(t, at(letter, ""), "not a database")
		refusal(t, at(filepath.Join(t.TempDir(), "no", "locks.db"), ""), "cannot be opened", "folder")
		use(t, s.polling(t), "k")
		_, err := at(s.name, "?mode=ro").Enter(soon(t), claim("k"))
		says(t, "Enter on a read-only database", err, driver.ErrPermanent, "may not be written")
	})
}

// as names the database for another user.
func (s *store) as(t testing.TB, user, password string) string {
	t.Helper()
	if s.dialect == sqllock.MySQL {
		return fmt.Sprintf("%s:%s@tcp(%s)/%s", user, password, s.on.Addr(), s.name)
	}
	u, err := url.Parse(s.dsn)
	must(t, err)
	u.User = url.UserPassword(user, password)
	return u.String()
}

// TestUsersWithoutRights is about users who may not create, or use, the tables. Who uses them needs to read and write
// rows, which is no more than what the error says to do.
func TestUsersWithoutRights(t *testing.T) {
	each(t, onServers, func(t *testing.T, s *store) {
		create, drop := []string{
			"CREATE ROLE plain LOGIN PASSWORD 's3cret'",
			"REVOKE CREATE ON SCHEMA public FROM PUBLIC", // as it is since PostgreSQL 15
		}, []string{"DROP OWNED BY plain", "DROP ROLE plain"}
		helps := "GRANT SELECT, INSERT, UPDATE, DELETE ON fencelock_swap, fencelock_lease, fencelock_history TO plain; " +
			"GRANT SELECT ON fencelock_meta TO plain"
		words := []string{"right", "GRANT", s.schemaCommand()}
		if s.dialect == sqllock.MySQL {
			create = []string{"CREATE USER plain IDENTIFIED BY 's3cret'", "GRANT CREATE TEMPORARY TABLES ON " + s.name + ".* TO plain"}
			drop = []string{"DROP USER plain"}
			helps = "GRANT SELECT, INSERT, UPDATE, DELETE ON " + s.name + ".* TO plain"
			words = []string{"right is missing"}
		}
		for _, text := range create {
			s.do(t, text)
		}
		t.Cleanup(func() {
			for _, text := range drop {
				s.do(t, text)
			}
		})
		dsn := s.as(t, "plain", "s3cret")
		plain := s.openDSN(t, dsn)
		refusal(t, s.backendOn(t, plain), words...)
		if s.dialect == sqllock.MySQL { // which calls a missing table a missing right
			refusal(t, s.new(t, plain, nil), "the same of tables that do not exist")
		}
		use(t, s.polling(t), "k")
		refusal(t, s.backendOn(t, plain), words[0])
		s.do(t, helps)
		if s.dialect == sqllock.MySQL {
			refusal(t, s.new(t, plain, &sqllock.Options{Prefix: "mine_", CreateTables: true}), "right is missing", "CREATE")
		}
		drivertest.Model(t, func(t *testing.T) driver.Backend { return s.new(t, s.openDSN(t, dsn), nil) }, 1)
	})
}

// TestUsersWhoAreNotLetIn is about passwords, and databases that are not there.
func TestUsersWhoAreNotLetIn(t *testing.T) {
	each(t, onServers, func(t *testing.T, s *store) {
		at := func(dsn string) *sqllock.Backend { return s.backendOn(t, s.openDSN(t, dsn)) }
		if s.dialect == sqllock.Postgres {
			missing := pgURL(t, s.dsn, "nobody_made_it")
			refusal(t, at(missing), "no such database")
			refusal(t, at(strings.Replace(missing, "sslmode=disable", "sslmode=prefer", 1)), "no such database")
			refusal(t, at(strings.Replace(s.dsn, "sslmode=disable", "sslmode=require", 1)), "the server has no TLS")
			s.do(t, "CREATE ROLE cassim LOGIN PASSWORD 's3cret'")
			s.do(t, "REVOKE CONNECT ON DATABASE "+s.name+" FROM PUBLIC")
			refusal(t, at(s.as(t, "cassim", "s3cret")), "GRANT CONNECT ON DATABASE")
			s.do(t, "DROP ROLE cassim")
			other := s.openDSN(t, pgURL(t, s.dsn, "postgres"))
			run(t, other, "ALTER DATABASE "+s.name+" WITH ALLOW_CONNECTIONS false")
			_, err := at(s.dsn).Enter(soon(t), claim("k"))
			says(t, "Enter of a database that takes no connections", err, driver.ErrRefused, "ALLOW_CONNECTIONS true")
			steps.Same(t, "it is refused for good", permanent(err), false)
			run(t, other, "ALTER DATABASE "+s.name+" WITH ALLOW_CONNECTIONS true")
			return
		}
		refusal(t, at(mariaDSN(s.on.Addr(), "nobody_made_it")), "no such database")
		refusal(t, at(mariaDSN(s.on.Addr(), s.name, "tls=true")), "the server has no TLS")
		refusal(t, at(mariaDSN(s.on.Addr(), "")), "no database is chosen")
		for _, user := range []struct{ change, password, says string }{
			{"IDENTIFIED BY 'open'", "s3cret", "password"},
			{"PASSWORD EXPIRE", "open", "refuses the user or the password"},
			{"ACCOUNT LOCK", "open", "refuses the user or the password"},
		} {
			s.do(t, "CREATE USER cassim IDENTIFIED BY 'open'")
			s.do(t, "GRANT ALL ON "+s.name+".* TO cassim")
			s.do(t, "ALTER USER cassim "+user.change)
			refusal(t, at(s.as(t, "cassim", user.password)), user.says)
			s.do(t, "DROP USER cassim")
		}
	})
}

// TestWrongPasswordIsPermanent has a server that asks for one.
func TestWrongPasswordIsPermanent(t *testing.T) {
	t.Parallel()
	t.Run("Postgres", func(t *testing.T) {
		s := postgres.storeOn(t, testserver.Postgres(t, testserver.Password("right")))
		refusal(t, s.backendOn(t, s.openDSN(t, s.as(t, "postgres", "s3cret"))), "password", "does not let us in")
		b := s.backend(t)
		use(t, b, "k")
		s.behind(t, testserver.PgBouncer(t, s.on))
		s.dsn = pgURL(t, s.dsn, "", pgBouncer.params...)
		use(t, s.polling(t), "k")
	})
}

// TestUserWhoIsBlocked has MariaDB block a user after a wrong password.
func TestUserWhoIsBlocked(t *testing.T) {
	t.Parallel()
	t.Run("MariaDB", func(t *testing.T) {
		s := ownServer(t, mariaDB)
		s.do(t, "CREATE USER ali IDENTIFIED BY 'open'")
		s.do(t, "GRANT ALL ON "+s.name+".* TO ali")
		s.do(t, "SET GLOBAL max_password_errors = 1")
		wrong := s.backendOn(t, s.openDSN(t, s.as(t, "ali", "wrong")))
		refusal(t, wrong, "user or the password")
		refusal(t, wrong, "is blocked because of too many credential errors")
	})
}
