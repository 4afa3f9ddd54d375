package sql_test

import (
	"strings"
	"testing"

	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/sqllock"
)

// TestErrorsOfMariaDBNameTheCause: a dump without --routines was put back, and a user without rights
// finds no tables, which the server calls a missing right.
func TestErrorsOfMariaDBNameTheCause(t *testing.T) {
	only(t, mariaDB, func(t *testing.T, s *store) {
		says := func(b *sqllock.Backend, text string) {
			t.Helper()
			_, err := b.Enter(soon(t), claim("k"))
			if !permanent(err) || !strings.Contains(err.Error(), text) {
				t.Errorf("Enter returned %v; want %q", err, text)
			}
		}
		user := "poor_" + s.name
		s.do(t, "CREATE USER "+user+"@'127.0.0.1'")
		t.Cleanup(func() { s.do(t, "DROP USER "+user+"@'127.0.0.1'") })
		s.do(t, "GRANT CREATE TEMPORARY TABLES ON "+s.name+".* TO "+user+"@'127.0.0.1'")
		says(s.new(t, s.openDSN(t, strings.Replace(s.dsn, "root@", user+"@", 1)), nil),
			"the same of tables and procedures that do not exist")

		use(t, s.polling(t), "k")
		s.do(t, "DROP PROCEDURE fencelock_v1_enter")
		says(s.new(t, s.open(t), nil), "mysqldump leaves procedures out unless it has --routines")
	})
}

// TestCompletionTypeThatEndsTheConnectionIsNamed: COMMIT in a procedure ends the connection before the
// answer is there. Nobody could tell that from a server that is down.
func TestCompletionTypeThatEndsTheConnectionIsNamed(t *testing.T) {
	t.Parallel()
	server := testserver.MariaDB(t)
	s := &store{kind: mariaDB, on: server}
	dsn := dsnOf(t, server, server.Addr(), "root")
	admin := s.openDSN(t, dsn)
	b := s.backendOn(t, s.openDSN(t, dsn))
	use(t, b, "k")
	run(t, admin, "SET GLOBAL completion_type = 'RELEASE'")
	for name, b := range map[string]*sqllock.Backend{
		"a new one": s.backendOn(t, s.openDSN(t, dsn)), "one without tables": s.new(t, s.openDSN(t, dsn), &sqllock.Options{Prefix: "app_", CreateTables: true}),
	} {
		_, err := b.Enter(soon(t), claim("k"))
		if !permanent(err) || !strings.Contains(err.Error(), "SET GLOBAL completion_type = 'NO_CHAIN'") {
			t.Errorf("%s: Enter returned %v; want that completion_type ends the connection, and what to do", name, err)
		}
	}
	run(t, admin, "SET GLOBAL completion_type = 'NO_CHAIN'")
	use(t, s.backendOn(t, s.openDSN(t, dsn)), "later")
}

// TestProceduresOfAnotherBuildAreNamed: the schema of a later build leaves procedures alone that are there.
// What the error says to do brings those of this build.
func TestProceduresOfAnotherBuildAreNamed(t *testing.T) {
	only(t, mariaDB, func(t *testing.T, s *store) {
		use(t, s.polling(t), "k")
		s.do(t, "DROP PROCEDURE fencelock_v1_enter")
		s.do(t, "CREATE PROCEDURE fencelock_v1_enter(p_key VARBINARY(1024)) SELECT 'ticket' AS what")
		_, err := s.polling(t).Enter(soon(t), claim("k"))
		if !permanent(err) || !strings.Contains(err.Error(), "are those of another build") {
			t.Fatalf("Enter returned %v; want that the procedures are of another build", err)
		}
		_, advice, _ := strings.Cut(err.Error(), "run the statements that ")
		query, _, _ := strings.Cut(advice, " returns, then what ")
		for _, drop := range column[string](t, s.db, query) {
			s.do(t, drop)
		}
		use(t, s.polling(t), "k")
	})
}
