package zklock

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/limit"
)

// FuzzKey: any bytes make a name that ZooKeeper takes, that no other key has, and that
// says at its beginning what the key says at its.
func FuzzKey(f *testing.F) {
	for _, key := range []string{"", "orders/42", ".", "..", "=41", "=", "a=4", "zookeeper", "\x00\r\n \x7f", "锁/é", "\xff\xfe", strings.Repeat("/", limit.Key)} {
		f.Add(key, uint(len(key)/2))
	}
	f.Fuzz(func(t *testing.T, key string, cut uint) {
		name := segment.Escape(key)
		if strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=") != "" {
			t.Errorf("%q is written as %q", key, name)
		}
		if got, ok := segment.Unescape(name); !ok || got != key {
			t.Errorf("%q is written as %q, and read as %q, %v", key, name, got, ok)
		}
		if begins := segment.Escape(key[:cut%uint(len(key)+1)]); !strings.HasPrefix(name, begins) {
			t.Errorf("%q does not begin with %q", name, begins)
		}
	})
}

// FuzzName: only what encode has written is the name of a line.
func FuzzName(f *testing.F) {
	for _, name := range []string{"a", "=2F", "=2f", "=41", "a.b", "=", ""} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if key, ok := segment.Unescape(name); ok && segment.Escape(key) != name {
			t.Errorf("%q is taken for the line of %q, whose name is %q", name, key, segment.Escape(key))
		}
	})
}

// FuzzMember: a node beside the claims of a line, whatever it is called, is none, or
// one with numbers that may decide who holds the lock.
func FuzzMember(f *testing.F) {
	c := driver.Claim{ID: "ABC.=", Capacity: driver.RW, Weight: 1}
	for _, name := range []string{
		nameOf(&c) + "0000000007", nameOf(&c) + "-2147483648", nameOf(&c), "m", "c", "c...", "cA.1.2.0", "cA.1.-1.0", "cA.+1.1.0",
		"cA.1048577.1.0", "cA.9223372036854775807.1.0", "cA.1.1.99999999999", "cA.1.1.0.0",
	} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		m, ok := parseMember(name)
		if !ok {
			return
		}
		if m.name != name || m.weight < 1 || m.weight > m.capacity || m.capacity > driver.RW {
			t.Errorf("%q is taken for a claim: %+v", name, m)
		}
		line := []member{{weight: 1, capacity: driver.RW}, m}
		if g := fits(line, 1); g != (m.weight+1 <= m.capacity) {
			t.Errorf("%q behind a reader is granted: %v", name, g)
		}
		if got := blocker(line, 1); got != "" && got != line[0].name {
			t.Errorf("%q watches %q", name, got)
		}
	})
}

// FuzzClaimName: what a claim's name says is read again.
func FuzzClaimName(f *testing.F) {
	f.Add("ABC", int64(driver.RW), int64(1), int32(7))
	f.Add("a.b=c\x00", int64(3), int64(3), int32(-1))
	f.Fuzz(func(t *testing.T, id string, capacity, weight int64, seq int32) {
		c := driver.Claim{ID: id, Capacity: capacity, Weight: weight}
		if weight < 1 || weight > capacity || capacity > driver.RW {
			return
		}
		name := fmt.Sprintf("%s%010d", nameOf(&c), seq)
		m, ok := parseMember(name)
		if want := (member{name: name, id: id, capacity: capacity, weight: weight, seq: seq}); !ok || m != want {
			t.Errorf("%q is read as %+v, %v; want %+v", name, m, ok, want)
		}
	})
}

// FuzzData: whatever a node holds is an error, or something that can be shown.
func FuzzData(f *testing.F) {
	for _, s := range []string{
		string(write(claimRecord{Format: format, Owner: "o", Span: 64, TTL: 30000})), string(write(markRecord{Format: format, ID: "ABC", Mark: []byte{0}})),
		string(write(brokenRecord{format, "because"})), "", "{}", `{"v":2}`, `{"v":1}`, `null`, `{"v":1,"span":-1}`,
		`{"v":1,"span":1,"ttl":-1}`, `{"v":1,"span":1,"ttl":9223372036854775807}`,
	} {
		f.Add([]byte(s), int64(1))
	}
	f.Fuzz(func(t *testing.T, data []byte, czxid int64) {
		if c, err := read[claimRecord]("/p", data); err == nil {
			held := found{record: c}
			if c.Span < 1 || c.Span > limit.Span || held.left() < 0 {
				t.Errorf("%q is taken for a claim: %+v", data, c)
			}
		}
		_, _ = read[markRecord]("/p", data)
		_, _ = read[brokenRecord]("/p", data)
		if token, err := tokenOf(czxid); err == nil && (token < 1 || token+limit.Span < token) {
			t.Errorf("transaction %d makes token %d", czxid, token)
		}
	})
}

// FuzzPrefix: a prefix that is taken makes paths that ZooKeeper takes.
func FuzzPrefix(f *testing.F) {
	for _, p := range []string{"/fencelock", "/", "", "/a//b", "/a/../b", "/a/", "/\x00", "/é", "/zookeeper", "/zookeeper/x", "/zookeeperx"} {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, p string) {
		if checkPrefix(p) != nil {
			return
		}
		for part := range strings.SplitSeq(p[1:], "/") {
			if part == "" || part == "." || part == ".." || strings.ContainsAny(part, "\x00\x01\x1f\x7f") {
				t.Errorf("the prefix %q is taken", p)
			}
		}
	})
}
