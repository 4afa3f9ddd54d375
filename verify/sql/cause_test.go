package sql_test

import (
	"strings"
	"testing"

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
