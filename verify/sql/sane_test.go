package sql_test

import (
	"cmp"
	"encoding/json"
	"testing"

	"github.com/fencelock/fencelock/sqllock"
)

// sane holds the tables to what every step keeps.
func (s *store) sane(t testing.TB) {
	t.Helper()
	if s.dialect == sqllock.SQLite {
		s.saneRows(t)
		return
	}
	if n := ask[int](t, s, "SELECT count(*) FROM fencelock_swap WHERE (mark = '') <> (marked_by = '')"); n > 0 {
		t.Errorf("%d marks have no writer", n)
	}
	rows, err := s.db.Query("SELECT lock_key, last, line FROM fencelock_swap WHERE line <> ''")
	must(t, err)
	defer rows.Close()
	for rows.Next() {
		var key, text []byte
		var last int64
		must(t, rows.Scan(&key, &last, &text))
		var d struct {
			Claims []saneClaim
		}
		must(t, json.Unmarshal(text, &d))
		saneLine(t, string(key), last, d.Claims)
	}
	must(t, rows.Err())
}

type saneClaim struct {
	ID                            string
	Token, Span, Weight, Capacity int64
	Granted                       bool
}

func saneLine(t testing.TB, key string, last int64, claims []saneClaim) {
	t.Helper()
	const whole = 1 << 20
	var end, weight int64
	ids := map[string]bool{}
	for _, c := range claims {
		c.Span, c.Capacity = cmp.Or(c.Span, 1), cmp.Or(c.Capacity, whole)
		c.Weight = cmp.Or(c.Weight, c.Capacity)
		weight += c.Weight
		if c.Token <= end || c.Token+c.Span-1 > last || ids[c.ID] || c.Granted != (weight <= c.Capacity) {
			t.Errorf("the line of %q, whose last token is %d, cannot be: %+v", key, last, claims)
			return
		}
		end, ids[c.ID] = c.Token+c.Span-1, true
	}
}

// saneRows is sane for tables with a row for each claim.
func (s *store) saneRows(t testing.TB) {
	t.Helper()
	const (
		claims = "FROM fencelock_claim c JOIN fencelock_line l USING ({key}) WHERE "
		lines  = "FROM fencelock_line l WHERE "
		pairs  = "FROM fencelock_claim a JOIN fencelock_claim b USING ({key}) WHERE a.token < b.token AND "
		before = "FROM fencelock_claim b WHERE b.{key} = c.{key} AND b.token < c.token"
		fits   = "c.weight + (SELECT coalesce({sum}(b.weight), 0) " + before + ") <= c.capacity"
		dead   = "FROM {tombstones} r JOIN fencelock_line l USING ({key}) WHERE "
	)
	wrong := map[string]string{
		"a claim without a line": "FROM fencelock_claim c WHERE NOT EXISTS (SELECT 1 " + lines +
			"l.{key} = c.{key})",
		"a token above the line's counter":  claims + "c.token + c.span - 1 > l.last",
		"spans that overlap":                pairs + "a.token + a.span > b.token",
		"one id twice in a line":            pairs + "a.id = b.id",
		"a granted claim that does not fit": "FROM fencelock_claim c WHERE c.granted > 0 AND NOT " + fits,
		"a waiting claim that fits":         "FROM fencelock_claim c WHERE c.granted = 0 AND " + fits,
	}
	if s.on != nil {
		wrong["a claim kept by a line that others are in"] = claims + "l.{alone}"
	}
	switch s.dialect {
	case sqllock.Postgres:
		wrong["a lease that ends too soon"] = claims + "c.expires < l.soonest"
		wrong["a claim in its line's row without an end"] = lines + "{alone} AND soonest = 9223372036854775807"
		wrong["a claim in its line's row that cannot be"] = lines +
			"{alone} AND (span NOT BETWEEN 1 AND last OR weight NOT BETWEEN 1 AND capacity)"
		wrong["a tombstone that ends later than its line knows"] = dead + "r.expires > l.tombstones"
		wrong["a mark without its writer"] = lines + "(mark = '') <> (mark_id = '')"
	case sqllock.MySQL:
		wrong["a claim below the front of its line"] = claims + "c.token < l.front"
		wrong["a tombstone of which the line knows nothing"] = dead + "l.tombstones = 0 AND r.expires > {now}"
		wrong["a mark without its writer"] = lines + "(mark IS NULL) <> (mark_id IS NULL)"
	default:
		wrong["a mark without its writer"] = lines + "(mark IS NULL) <> (mark_id IS NULL)"
	}
	for what, query := range wrong {
		if n := ask[int](t, s, "SELECT count(*) "+query); n > 0 {
			t.Errorf("the tables have %d times %s", n, what)
		}
	}
}
