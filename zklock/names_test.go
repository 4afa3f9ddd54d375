package zklock

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/limit"
	"github.com/go-zookeeper/zk"
)

//verify:fault The API, on all stores | keys: empty, of a megabyte, binary, with each separator, similar
func TestNamesTakeEveryByteAndComeBack(t *testing.T) {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	for _, key := range []string{string(all), ".", "..", "/", "a/b", "\x00", "=", "=2F", "%2F", "zookeeper", "☂"} {
		name := segment.Escape(key)
		if back, ok := segment.Unescape(name); !ok || back != key {
			t.Errorf("%q became %q and came back as %q, %v", key, name, back, ok)
		}
		if strings.ContainsAny(name, "/.\x00") {
			t.Errorf("%q became %q", key, name)
		}
	}
	for _, name := range []string{"=", "=4", "=41", "=2f", "a.b", "a b", "=ZZ", "é"} {
		if key, ok := segment.Unescape(name); ok {
			t.Errorf("%q was read as %q; encode never writes it", name, key)
		}
	}
}

func TestTokensEndWhereTheyWouldOverflow(t *testing.T) {
	for czxid, want := range map[int64]int64{
		1:                 1 << 16,
		1<<32 | 7:         (1<<32 | 7) << 16,
		1<<47 - 1:         (1<<47 - 1) << 16, // the last of epoch 2^15-1
		1 << 37:           1 << 53,
		1<<46 | 1:         (1<<46 | 1) << 16, // 2^62 and above
		1<<37 + 1:         1<<53 + 1<<16,
		(1<<15 - 1) << 32: (1<<15 - 1) << 48,
	} {
		got, err := tokenOf(czxid)
		if err != nil || got != want || got <= 0 || got+limit.Span <= got {
			t.Errorf("transaction %#x has token %d, error %v; want %d", czxid, got, err, want)
		}
	}
	for _, czxid := range []int64{0, -1, 1 << 47, 1<<47 | 1, 1<<48 - 1, 1<<63 - 1} {
		if got, err := tokenOf(czxid); !errors.Is(err, driver.ErrPermanent) || !strings.Contains(err.Error(), "new ensemble") {
			t.Errorf("transaction %#x has token %d, error %v; want it refused", czxid, got, err)
		}
	}
}

// The server counts the nodes of a line in 32 bits and runs over. The order of
// arrival is that of the transactions.
func TestLineKeepsItsOrderWhenTheCountRunsOver(t *testing.T) {
	t.Parallel()
	s := server(t)
	b := connect(t, long, s)
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
