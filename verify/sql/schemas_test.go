package sql_test

import (
	"database/sql"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver/health"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/sqllock"
)

// role makes a role that may log in, and returns a pool that it has. With own it has a schema of
// its own name, as the first in the default search_path.
func (s *store) role(t *testing.T, name string, own bool) *sql.DB {
	t.Helper()
	name = s.name + "_" + name
	s.do(t, "CREATE ROLE "+name+" LOGIN")
	s.do(t, "GRANT ALL ON SCHEMA public TO PUBLIC")
	if own {
		s.do(t, "CREATE SCHEMA AUTHORIZATION "+name)
	}
	t.Cleanup(func() {
		s.do(t, "DROP OWNED BY "+name+" CASCADE")
		s.do(t, "DROP ROLE "+name)
	})
	u, err := url.Parse(s.dsn)
	must(t, err)
	u.User = url.User(name)
	db := s.openDSN(t, u.String())
	db.SetMaxIdleConns(-1) // a search_path that is set for a role counts from the next connection on
	return db
}

// follow does what the only finding with code says is to be done.
func (s *store) follow(t *testing.T, b *sqllock.Backend, code string) {
	t.Helper()
	e, err := b.Examine(soon(t), time.Minute)
	must(t, err)
	for _, f := range e.Findings {
		if f.Code != code {
			continue
		}
		if f.Severity != health.Error {
			t.Errorf("%s is a %v; want an error", code, f.Severity)
		}
		remedy := f.Remedy
		if _, rest, ok := strings.Cut(remedy, ", then "); ok {
			remedy = rest
		}
		s.do(t, remedy)
		return
	}
	t.Fatalf("the findings are %+v; want one with the code %s", e.Findings, code)
}

// TestTwoUsersWithASchemaEach: user a has a schema of the name a, which comes first in the default
// search_path, and user b uses public. Both would hold one lock at the same time.
func TestTwoUsersWithASchemaEach(t *testing.T) {
	only(t, postgres, func(t *testing.T, s *store) {
		a := s.backendOn(t, s.role(t, "a", true))
		b := s.role(t, "b", false)
		holder := hold(t, a, claim("n"))
		late := s.backendOn(t, b)
		refusal(t, late, "in the schema "+s.name+"_a", "ALTER ROLE "+s.name+"_b SET search_path")
		refusal(t, s.new(t, b, nil), "in the schema "+s.name+"_a")
		// The DDL makes no second set by hand, either.
		ddl, err := sqllock.Schema(sqllock.Postgres, nil)
		must(t, err)
		says(t, "the DDL of a second set", second(b.Exec(ddl)), nil, "in the schema "+s.name+"_a")
		s.follow(t, late, "postgres-schemas")
		late = s.backendOn(t, b)
		busy(t, late, "n")
		leave(t, a, holder)
		use(t, late, "n")
	})
}

// TestUserWithASchemaFindsTheTablesOfOthers: the tables are in public, which the default search_path
// has behind the schema of user a. User a uses them, and the DDL in its own schema is refused.
func TestUserWithASchemaFindsTheTablesOfOthers(t *testing.T) {
	only(t, postgres, func(t *testing.T, s *store) {
		b := s.backendOn(t, s.role(t, "b", false))
		holder := hold(t, b, claim("n"))
		db := s.role(t, "a", true)
		refusal(t, s.backendOn(t, db), "GRANT SELECT, INSERT, UPDATE, DELETE")
		s.do(t, "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO "+s.name+"_a")
		a := s.backendOn(t, db)
		busy(t, a, "n")
		ddl, err := sqllock.Schema(sqllock.Postgres, nil)
		must(t, err)
		says(t, "the DDL of a second set", second(db.Exec(ddl)), nil, "in the schema public")
		leave(t, b, holder)
		use(t, a, "n")
	})
}

// TestTwoSetsOfTables: two sets are there already, from a version that did not look, or from a dump
// that was put back into another schema. No client uses either, until one is removed.
func TestTwoSetsOfTables(t *testing.T) {
	only(t, postgres, func(t *testing.T, s *store) {
		a, b := s.role(t, "a", true), s.role(t, "b", false)
		use(t, s.backendOn(t, b), "n")
		for _, table := range []string{"meta", "swap", "lease", "history"} {
			s.do(t, "CREATE TABLE "+s.name+"_a.fencelock_"+table+" (LIKE public.fencelock_"+table+" INCLUDING ALL)")
		}
		s.do(t, "INSERT INTO "+s.name+"_a.fencelock_meta SELECT * FROM public.fencelock_meta")
		s.do(t, "GRANT ALL ON ALL TABLES IN SCHEMA public, "+s.name+"_a TO "+s.name+"_a")
		for _, db := range []*sql.DB{a, b} {
			refusal(t, s.backendOn(t, db), "in the schema", "public", s.name+"_a", "DROP TABLE")
		}
		s.follow(t, s.backendOn(t, a), "postgres-schemas")
		ours, theirs := s.backendOn(t, a), s.backendOn(t, b)
		holder := hold(t, ours, claim("n"))
		busy(t, theirs, "n")
		leave(t, ours, holder)
	})
}

// TestSetsThatAreMadeAtOnce: the first clients of two users come at the same moment.
func TestSetsThatAreMadeAtOnce(t *testing.T) {
	for _, isolation := range []string{"read committed", "serializable"} {
		t.Run(isolation, func(t *testing.T) {
			only(t, postgres, func(t *testing.T, s *store) {
				s.do(t, "ALTER DATABASE "+s.name+" SET default_transaction_isolation = '"+isolation+"'")
				// It is held up until both are at the point of creating.
				x := s.begin(t, "SELECT pg_advisory_xact_lock(7305808869229519730)")
				errs := make([]error, 2)
				var group sync.WaitGroup
				for i, db := range []*sql.DB{s.role(t, "a", true), s.role(t, "b", false)} {
					b := s.backendOn(t, db)
					group.Go(func() { _, errs[i] = b.Line(soon(t), "n") })
				}
				until(t, "both are about to create their tables", func() bool {
					return ask[int](t, s, "SELECT count(*)::int FROM pg_locks WHERE locktype = 'advisory' AND NOT granted "+
						"AND database = (SELECT oid FROM pg_database WHERE datname = current_database())") == 2
				})
				x.end()
				group.Wait()
				if (errs[0] == nil) == (errs[1] == nil) {
					t.Errorf("the answers are %v; want that one has its tables, and the other is refused", errs)
				}
				steps.Same(t, "sets of tables", ask[int](t, s, "SELECT count(*)::int FROM pg_class WHERE relname = 'fencelock_swap'"), 1)
			})
		})
	}
}
