package sql_test

import (
	"testing"

	"github.com/fencelock/fencelock/sqllock"
)

// TestAnIdOfNoBytesIsNobodys: a line that keeps no claim has no ID, which is not an empty one.
func TestAnIdOfNoBytesIsNobodys(t *testing.T) {
	polled(t, []kind{mariaDB.with("ClientFoundRows", "clientFoundRows=true")}, func(t *testing.T, s *store, b *sqllock.Backend) {
		ticket := hold(t, b, claim("k"))
		leave(t, b, ticket)
		ticket.ID = ""
		gone(t, "Renew without an ID", renew(b, soon(t), ticket))
	})
}
