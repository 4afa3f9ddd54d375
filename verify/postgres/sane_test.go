package postgres_test

import (
	"database/sql"
	"testing"
)

// sane holds the tables to what every step keeps.
func sane(t testing.TB, db *sql.DB) {
	t.Helper()
	for what, query := range map[string]string{
		"a claim without a line":                      `SELECT count(*) FROM fencelock_claim c WHERE NOT EXISTS (SELECT 1 FROM fencelock_line l WHERE l.key = c.key)`,
		"a token above the line's counter":            `SELECT count(*) FROM fencelock_claim c JOIN fencelock_line l USING (key) WHERE c.token + c.span - 1 > l.last`,
		"a lease that ends too soon":                  `SELECT count(*) FROM fencelock_claim c JOIN fencelock_line l USING (key) WHERE c.expires < l.soonest`,
		"spans that overlap":                          `SELECT count(*) FROM fencelock_claim a JOIN fencelock_claim b USING (key) WHERE a.token < b.token AND a.token + a.span > b.token`,
		"one id twice in a line":                      `SELECT count(*) FROM fencelock_claim a JOIN fencelock_claim b USING (key) WHERE a.token < b.token AND a.id = b.id`,
		"a claim in its line's row that is not alone": `SELECT count(*) FROM fencelock_line l JOIN fencelock_claim c USING (key) WHERE l.id <> ''`,
		"a claim in its line's row without an end":    `SELECT count(*) FROM fencelock_line WHERE id <> '' AND soonest = 9223372036854775807`,
		"a claim in its line's row that cannot be":    `SELECT count(*) FROM fencelock_line WHERE id <> '' AND (span NOT BETWEEN 1 AND last OR weight NOT BETWEEN 1 AND capacity)`,
		"an id that rests longer than its line knows": `SELECT count(*) FROM fencelock_rest r JOIN fencelock_line l USING (key) WHERE r.expires > l.rests`,
		"a mark without its writer":                   `SELECT count(*) FROM fencelock_line WHERE (mark = '') <> (mark_id = '')`,
		"a granted claim that does not fit":           `SELECT count(*) FROM fencelock_claim c WHERE c.granted > 0 AND c.weight + (SELECT coalesce(sum(b.weight), 0) FROM fencelock_claim b WHERE b.key = c.key AND b.token < c.token) > c.capacity`,
		"a waiting claim that fits":                   `SELECT count(*) FROM fencelock_claim c WHERE c.granted = 0 AND c.weight + (SELECT coalesce(sum(b.weight), 0) FROM fencelock_claim b WHERE b.key = c.key AND b.token < c.token) <= c.capacity`,
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
