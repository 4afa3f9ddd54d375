package zklock

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/limit"
)

func TestTokensEndWhereTheyWouldOverflow(t *testing.T) {
	for czxid, want := range map[int64]int64{
		1:         1 << 16,
		1<<47 - 1: (1<<47 - 1) << 16, // the last of epoch 2^15-1
	} {
		got, err := tokenOf(czxid)
		if err != nil || got != want || got <= 0 || got+limit.Span <= got {
			t.Errorf("transaction %#x has token %d, error %v; want %d", czxid, got, err, want)
		}
	}
	for _, czxid := range []int64{0, -1, 1 << 47, 1<<63 - 1} {
		if got, err := tokenOf(czxid); !errors.Is(err, driver.ErrPermanent) || !strings.Contains(err.Error(), "new ensemble") {
			t.Errorf("transaction %#x has token %d, error %v; want it refused", czxid, got, err)
		}
	}
}

// The server counts the nodes of a line in 32 bits and runs over. The order of
// arrival is that of the transactions.
func TestLineKeepsItsOrderWhenTheCountRunsOver(t *testing.T) {
	s, b := oneSession(t)
	a := admin(t, s)
	dir := stayingLine(t, b, a, "k")
	seqs := []string{"2147483646", "2147483647", "-2147483648", "-2147483647"}
	for i, seq := range seqs {
		c := steps.Claim("k")
		c.ID = fmt.Sprint("claim", i)
		data := write(claimRecord{Format: format, Owner: c.ID, Span: 1, TTL: 60000})
		steps.Must(t, steps.ErrOf(a.Create(dir+"/"+nameOf(&c)+seq, data, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))))
	}
	l, err := b.Line(t.Context(), "k")
	if err != nil || len(l.Claims) != len(seqs) {
		t.Fatalf("the line is %+v, error %v; want %d claims", l, err, len(seqs))
	}
	for i, s := range l.Claims {
		if s.Owner != fmt.Sprint("claim", i) || s.Granted != (i == 0) || i > 0 && s.Token <= l.Claims[i-1].Token {
			t.Errorf("position %d is %+v; want claim %d", i, s, i)
		}
	}
}

func TestBlockers(t *testing.T) {
	const rw = driver.RW
	line := func(weights ...int64) (ms []member) {
		for i, w := range weights {
			ms = append(ms, member{name: string(rune('a' + i)), capacity: rw, weight: w, seq: int32(i)})
		}
		return ms
	}
	for _, c := range []struct {
		line []member
		at   int
		want string
	}{
		{line(rw, rw, rw), 2, "b"},
		{line(1, 1, rw), 2, "b"},
		{line(rw, 1, 1), 2, "a"},     // not its neighbour, a reader that stays
		{line(1, rw, 1, 1), 3, "b"},  // a writer that waits
		{line(rw, rw, 1, 1), 3, "b"}, // the nearest of two
	} {
		if got := blocker(c.line, c.at); got != c.want {
			t.Errorf("claim %d of %v waits for %q; want %q", c.at, c.line, got, c.want)
		}
	}
	sem := line(1, 1, 1, 1)
	for i := range sem {
		sem[i].capacity = 2
	}
	steps.Same(t, "a semaphore's claim waits for", blocker(sem, 3), "")
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
