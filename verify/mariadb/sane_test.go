package mariadb_test

import (
	"database/sql"
	"testing"
)

// sane holds the tables to what every step keeps.
func sane(t testing.TB, db *sql.DB) {
	t.Helper()
	const before = `(SELECT COALESCE(SUM(b.weight), 0) FROM fencelock_claim b WHERE b.lock_key = c.lock_key AND b.token < c.token)`
	for what, query := range map[string]string{
		"a claim without a line":                        `SELECT COUNT(*) FROM fencelock_claim c WHERE NOT EXISTS (SELECT 1 FROM fencelock_line l WHERE l.lock_key = c.lock_key)`,
		"a token above the line's counter":              `SELECT COUNT(*) FROM fencelock_claim c JOIN fencelock_line l USING (lock_key) WHERE c.token + c.span - 1 > l.last`,
		"a claim below the front of its line":           `SELECT COUNT(*) FROM fencelock_claim c JOIN fencelock_line l USING (lock_key) WHERE c.token < l.front`,
		"spans that overlap":                            `SELECT COUNT(*) FROM fencelock_claim a JOIN fencelock_claim b USING (lock_key) WHERE a.token < b.token AND a.token + a.span > b.token`,
		"one id twice in a line":                        `SELECT COUNT(*) FROM fencelock_claim a JOIN fencelock_claim b USING (lock_key) WHERE a.token < b.token AND a.id = b.id`,
		"a claim kept by a line that others are in":     `SELECT COUNT(*) FROM fencelock_line l WHERE l.id IS NOT NULL AND EXISTS (SELECT 1 FROM fencelock_claim c WHERE c.lock_key = l.lock_key)`,
		"an id at rest of which the line knows nothing": `SELECT COUNT(*) FROM fencelock_rest r JOIN fencelock_line l USING (lock_key) WHERE l.rests = 0 AND r.expires > UNIX_TIMESTAMP(SYSDATE(6)) * 1000000`,
		"a mark without its writer":                     `SELECT COUNT(*) FROM fencelock_line WHERE (mark IS NULL) <> (mark_id IS NULL)`,
		"a granted claim that does not fit":             `SELECT COUNT(*) FROM fencelock_claim c WHERE c.granted = 1 AND c.weight + ` + before + ` > c.capacity`,
		"a waiting claim that fits":                     `SELECT COUNT(*) FROM fencelock_claim c WHERE c.granted = 0 AND c.weight + ` + before + ` <= c.capacity`,
	} {
		var n int
		if err := db.QueryRow(query).Scan(&n); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if n > 0 {
			t.Errorf("the tables have %d times %s", n, what)
		}
	}
}
