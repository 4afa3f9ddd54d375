package sql_test

import (
	"strings"
	"testing"

	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/sqllock"
)

// TestErrorsOfMariaDBNameTheCause: a user without rights finds no tables, which the server calls a missing right.
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
			"the same of tables that do not exist")
	})
}

// TestCompletionTypeDoesNotMatter: each statement of a lock is a transaction of its own, so no COMMIT ends the
// connection, or begins another transaction.
func TestCompletionTypeDoesNotMatter(t *testing.T) {
	t.Parallel()
	server := testserver.MariaDB(t)
	s := &store{kind: mariaDB, on: server}
	dsn := dsnOf(t, server, server.Addr(), "root")
	admin := s.openDSN(t, dsn)
	for _, completion := range []string{"RELEASE", "CHAIN"} {
		run(t, admin, "SET GLOBAL completion_type = '"+completion+"'")
		for _, params := range []string{"", "autocommit=0"} {
			o := &sqllock.Options{Prefix: "app_" + strings.TrimSuffix(params, "=0") + completion, CreateTables: true}
			b := s.new(t, s.openDSN(t, dsn+"?"+params), o)
			other := s.new(t, s.openDSN(t, dsn+"?"+params), o)
			holder := hold(t, b, claim("k"))
			w := wait(t, other, claim("k"))
			renewed(t, b, holder)
			leave(t, b, holder)
			leave(t, other, granted(t, other, w))
			empty(t, b)
		}
	}
}
