package etcdlock

import (
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/limit"
)

// FuzzName: only what escape has written is the name of a line. Else one line would
// have two names, and its claims not see each other.
func FuzzName(f *testing.F) {
	for _, name := range []string{
		"fencelock/a/wABC", "fencelock/%41/w", "fencelock/%2f/w", "fencelock/%2F/m", "fencelock/a b/w", "fencelock//w",
		"x", "fencelock/", "fencelock/a", "fencelock/a/", "fencelock/%/w1", "fencelock/%2/w1", "fencelock/%zz/w1",
	} {
		f.Add(name)
	}
	b := &Backend{prefix: "fencelock/"}
	f.Fuzz(func(t *testing.T, name string) {
		key, ok := b.parseKey(name)
		if ok && strings.HasPrefix(name, b.prefix) && !strings.HasPrefix(name, string(b.line(key))) {
			t.Errorf("%q is taken for a key of the line of %q, whose keys begin with %q", name, key, b.line(key))
		}
	})
}

// FuzzValue: whatever stands in a key is an error, or numbers that may decide who holds
// a lock: a weight below zero would make room where there is none.
func FuzzValue(f *testing.F) {
	c := driver.Claim{Owner: "o", Note: "n", Capacity: 3, Weight: 2, Span: 64}
	for _, s := range []string{
		encode(newRecord(&c, 30*time.Second)), encode(tombstone{format, true, "because"}), encode(markRecord{format, []byte("\x00"), "ABC"}),
		"", "{}", `{"v":2}`, `{"v":1,`, `{"v":1,"weight":-5,"capacity":3,"span":1,"ttl":5}`, `{"v":1,"weight":2,"capacity":1,"span":1,"ttl":5}`,
		`{"v":1,"weight":1,"capacity":1,"span":0,"ttl":-1}`, `{"v":1,"weight":1,"capacity":1,"span":1,"ttl":9223372036854775807}`, `null`, `[1]`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		kv := &keyValue{Key: []byte("k"), Value: value}
		var r record
		if decode(kv, &r) == nil {
			if r.Weight < 1 || r.Weight > r.Capacity || r.Capacity > driver.RW || r.Span < 1 || r.Span > limit.Span || r.ttl() < 0 || r.left() < 0 {
				t.Errorf("%q is taken for a claim: %+v", value, r)
			}
		}
		var m markRecord
		_ = decode(kv, &m)
		if goneFor(kv) == nil {
			t.Errorf("%q is taken for no tombstone", value)
		}
	})
}
