package sql_test

import (
	"cmp"
	"encoding/json"
	"testing"
)

// sane holds the tables to what every step keeps.
func (s *store) sane(t testing.TB) {
	t.Helper()
	if n := ask[int](t, s, "SELECT count(*) FROM fencelock_swap WHERE (length(mark) = 0) <> (length(marked_by) = 0)"); n > 0 {
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
