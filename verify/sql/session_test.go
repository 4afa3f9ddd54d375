package sql_test

import (
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/sqllock"
)

// session is a transaction of somebody else, which goes on while steps run.
type session struct {
	t    testing.TB
	s    *store
	conn *sql.Conn
}

// begin runs statements in a transaction, and leaves it open.
func (s *store) begin(t testing.TB, statements ...string) *session {
	t.Helper()
	conn, err := s.db.Conn(soon(t))
	must(t, err)
	x := &session{t, s, conn}
	t.Cleanup(func() { conn.Close() })
	for _, text := range append([]string{"BEGIN"}, statements...) {
		x.do(text)
	}
	return x
}

func (x *session) do(text string, args ...any) {
	x.t.Helper()
	run(x.t, x.conn, x.s.sql(text), args...)
}

// end commits.
func (x *session) end() {
	x.t.Helper()
	x.do("COMMIT")
	x.conn.Close()
}

// undo rolls back.
func (x *session) undo() {
	x.t.Helper()
	x.do("ROLLBACK")
	x.conn.Close()
}

// blocked waits until a step waits for a row, and returns the number of its session. MariaDB
// does not say so: there a statement that stands still is one that waits, if nobody else is at
// work.
func (s *store) blocked(t testing.TB) (id int64) {
	t.Helper()
	query, often := `SELECT pid FROM pg_stat_activity
		WHERE datname = current_database() AND wait_event_type = 'Lock' LIMIT 1`, 0
	if s.dialect == sqllock.MySQL {
		query, often = `SELECT id FROM information_schema.processlist
			WHERE db = DATABASE() AND command = 'Query' AND id <> CONNECTION_ID()`, 20
	}
	seen := 0
	until(t, "a step waits for a row", func() bool {
		var now int64
		err := s.db.QueryRow(query).Scan(&now)
		switch {
		case err != nil && !errors.Is(err, sql.ErrNoRows):
			t.Fatal(err)
		case err != nil:
			id, seen = 0, 0
		case now != id:
			id, seen = now, 1
		default:
			seen++
		}
		return seen > often
	})
	return id
}

// lockLine is a statement that locks all lines, lockClaims one that locks all leases with rows of their own.
const (
	lockLine   = "SELECT * FROM fencelock_swap FOR UPDATE"
	lockClaims = "SELECT * FROM fencelock_lease FOR UPDATE"
)

// enterSQL is an Enter of a line that nobody is in, as another process sends it.
func (s *store) enterSQL(key, id string) string {
	const columns = "(lock_key, version, last, mark, marked_by, holder, expires, renewals, line, arrivals, came, open_until, capacity, news)"
	line := `{"format":1,"claims":[{"id":"` + id + `","token":', ? , ',"ttl":"1m0s","granted":true}]}`
	token := "CAST({now} AS SIGNED)"
	set := "ON DUPLICATE KEY UPDATE version = version + 1, last = VALUES(last), holder = VALUES(holder), expires = VALUES(expires), line = VALUES(line)"
	if s.dialect == sqllock.Postgres {
		token = "{now}::bigint"
		set = "ON CONFLICT (lock_key) DO UPDATE SET version = l.version + 1, last = excluded.last, holder = excluded.holder, " +
			"expires = excluded.expires, line = excluded.line"
	}
	return "INSERT INTO fencelock_swap " + map[bool]string{true: "AS l "}[s.dialect == sqllock.Postgres] + columns +
		" SELECT '" + key + "', n.now, n.now, '', '', '" + id + "', n.now + 60000000, 0, CONCAT('" +
		strings.ReplaceAll(line, "?", "n.now") + "'), '', 0, 0, 1048576, '' FROM (SELECT " + token + " AS now) n WHERE 1 = 1 " + set
}

// leaveSQL is a Leave as another process sends it, of the only claim. It leaves a tombstone of an ID, unless
// that is "".
func (s *store) leaveSQL(key, id, tombstone string) string {
	line := ""
	if tombstone != "" {
		line = `{"format":1,"tombstones":[{"id":"` + tombstone + `","until":"2200-01-01T00:00:00Z","reason":"it has left"}]}`
	}
	return "UPDATE fencelock_swap SET version = version + 1, holder = '', expires = 0, open_until = 0, line = '" + line +
		"' WHERE lock_key = '" + key + "' AND holder = '" + id + "'"
}
