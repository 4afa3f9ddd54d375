package swaplock

import (
	"fmt"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/line"
)

// FuzzDocument: whatever a document and an arrival hold is an error, or a line that makes sense and is the same after it
// was written down.
func FuzzDocument(f *testing.F) {
	const claims = `{"format":1,"claims":[{"id":"a","token":5,"granted":true,"ttl":"1m0s","until":"2030-01-01T00:00:30Z"},` +
		`{"id":{"base64":"/w=="},"token":6,"weight":1,"span":9,"lent":true,"ttl":"1m0s"}],` +
		`"tombstones":[{"id":"b","until":"2030-01-01T00:00:30Z","reason":"stop","broken":true}]}`
	f.Add(claims, `{"id":"c","ttl":"1m0s","wait_ttl":"5s"}`, "a", int64(30))
	f.Add(claims, `{"id":"a","ttl":"1m0s"}`, "", int64(1)<<62)
	f.Add(`{"format":1,"claims":[{"id":"a","token":-1,"span":-5,"capacity":-1,"weight":-7,"ttl":"-1m"}]}`, `{}`, "a", int64(-1))
	f.Add(`{"format":1,"claims":[{"id":"a","token":5,"weight":-7,"ttl":"1m","until":"2030-01-01T00:00:30Z"}]}`, `{}`, "", int64(9))
	f.Add(`{"format":2}`, `null`, "", int64(0))
	f.Add(`{"format":1,"claims":[null]}`, `[]`, "", int64(0))
	f.Add(`{"format":1,"claims":[{"id":"a","token":9223372036854775807,"ttl":"1m","until":"9999-01-01T00:00:00Z"}]}`,
		`{"id":"d","weight":9223372036854775807}`, "", int64(5))
	f.Fuzz(func(t *testing.T, text, arrival, holder string, last int64) {
		now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
		st := State{Version: "1", Now: now, Records: map[string]time.Time{"\xff": now.Add(time.Second)}}
		st.Content = Content{Last: last, Holder: holder, Expires: now.Add(time.Minute), Document: []byte(text)}
		st.Arrivals = []Arrival{{ID: "c", Claim: []byte(arrival), Token: last, At: now}}
		r, err := open("k", st)
		if err != nil {
			return
		}
		s := &line.Step{Wall: now, Mono: sinceEpoch(now)}
		r.Purge(s)
		before := r.Describe(s, "k")
		for i, c := range before.Claims {
			switch {
			case c.Left <= 0, c.Weight < 1, c.Weight > c.Capacity, c.Capacity > driver.RW, c.Span < 1, c.Token < 1, c.Token+c.Span-1 > last,
				i > 0 && c.Token <= before.Claims[i-1].Token:
				t.Fatalf("claim %d of %d makes no sense: %+v, and the last token is %d", i, len(before.Claims), c, last)
			}
		}
		c := &Change{Arrivals: len(st.Arrivals)}
		if err := r.write(c); err != nil {
			t.Fatalf("%s cannot be written: %v", text, err)
		}
		again, err := open("k", State{Version: "2", Now: now, Records: st.Records, Content: c.Content})
		if err != nil {
			t.Fatalf("%s is written as %s, error %v", text, c.Document, err)
		}
		if again := (&Backend{}).show(again); fmt.Sprint(again) != fmt.Sprint(before) {
			t.Errorf("%s is read as %+v and, from %s, as %+v", text, before, c.Document, again)
		}
	})
}
