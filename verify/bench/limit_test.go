package bench

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock/internal/testserver"
)

// verdictOf returns the row of the table that has what in it.
func verdictOf(t *testing.T, rs results, l language, what string) string {
	t.Helper()
	var out bytes.Buffer
	printTargets(&out, rs, l)
	for line := range strings.Lines(out.String()) {
		if strings.Contains(line, what) {
			return strings.TrimSpace(line)
		}
	}
	t.Fatalf("no row has %q in\n%s", what, out.String())
	return ""
}

func TestALimitRefutesWhatItDoesNotReachItself(t *testing.T) {
	for _, tt := range []struct {
		name       string
		ours, bare float64 // 0: not measured
		want, not  string
	}{
		{"it holds", 22, 23, "| 1.10 × | 0.957 | – | – | yes |", bare},
		{"refuted", 28, 24, "| 1.40 × | 1.22 | 1.20 × (two bare scripts) | 1.17 | **no: the limit is 1.20 ×** |", "yes"},
		{"the limit reaches it", 28, 22, "| 1.40 × | 1.22 | 1.10 × (two bare scripts) | 1.27 | **no** |", "the limit is"},
		{"no limit was measured", 28, 0, "| 1.40 × | 1.22 | – | – | **no** |", bare},
	} {
		rs := results{{"free", 1, floor, 0, Values{"p50_us": 20}}, {"free", 1, ours, 0, Values{"p50_us": tt.ours}}}
		if tt.bare > 0 {
			rs = append(rs, Result{"free", 1, bare, 0, Values{"p50_us": tt.bare}})
		}
		row := verdictOf(t, rs, english, "p50, × raw SET NX")
		if !strings.HasSuffix(row, tt.want) || strings.Contains(row, tt.not) {
			t.Errorf("%s: got %s\nwant %s", tt.name, row, tt.want)
		}
	}
	rs := results{{"free", 1, floor, 0, Values{"p50_us": 20}}, {"free", 1, ours, 0, Values{"p50_us": 28}}, {"free", 1, bare, 0, Values{"p50_us": 24}}}
	if row := verdictOf(t, rs, chinese, "SET NX"); !strings.HasSuffix(row, "| 1.20 ×（两个最小脚本） | 1.17 | **否：极限是 1.20 ×** |") {
		t.Errorf("in Chinese: %s", row)
	}
}

func TestALimitIsJudgedAsStrictlyAsWhatIsWanted(t *testing.T) {
	for _, tt := range []struct {
		name          string
		target        target
		holds, refute bool
	}{
		{"at most, met", target{value: 2, wanted: 2, most: true, limit: limit{bare, 3}}, true, false},
		{"at most, the limit meets it", target{value: 3, wanted: 2, most: true, limit: limit{bare, 2}}, false, false},
		{"below, the limit only meets it", target{value: 3, wanted: 2, most: true, below: true, limit: limit{bare, 2}}, false, true},
		{"at least, the limit meets it", target{value: 1, wanted: 2, limit: limit{bare, 2}}, false, false},
		{"at least, the limit is below", target{value: 1, wanted: 2, limit: limit{bare, 1.9}}, false, true},
		{"above, the limit only meets it", target{value: 1, wanted: 2, below: true, limit: limit{bare, 2}}, false, true},
		{"nobody is the limit", target{value: 1, wanted: 2, limit: limit{"", 1}}, false, false},
		{"the limit was not measured", target{value: 1, wanted: 2, limit: limit{bare, results(nil).value(bare, "x")}}, false, false},
	} {
		if h, r := tt.target.holds(), tt.target.refuted(); h != tt.holds || r != tt.refute {
			t.Errorf("%s: holds %v, refuted %v; want %v, %v", tt.name, h, r, tt.holds, tt.refute)
		}
	}
}

func TestLimitsAreNoPeersThatTargetsAreMeasuredAgainst(t *testing.T) {
	rs := results{
		{"processes", 32, lineLeast, 0, Values{"crossing_p50_us": 60}},
		{"processes", 32, bsm + ", every 5 ms", 0, Values{"crossing_p50_us": 150}},
		{"processes", 32, ours, 0, Values{"crossing_p50_us": 280}},
	}
	who, x := rs.best("crossing_p50_us", true)
	if who != bsm+", every 5 ms" || x != 150 {
		t.Errorf("the best peer is %s with %v", who, x)
	}
	if row := verdictOf(t, rs, english, "hand-over between processes"); !strings.HasSuffix(row, "| 60 µs (two bare scripts in line) | 4.67 | **no** |") {
		t.Errorf("the limit is not the bare line: %s", row)
	}
	// Each limit that a target names takes part somewhere, and is nobody's best peer.
	for _, target := range targets(nil) {
		if target.limit.by == "" {
			continue
		}
		if _, err := findPeer(target.limit.by); err != nil || !isFloor(target.limit.by) {
			t.Errorf("%q: the limit %q: %v, a floor: %v", target.en, target.limit.by, err, isFloor(target.limit.by))
		}
	}
}

// watched is a context that tells when somebody waits for its end.
type watched struct {
	context.Context
	waits chan struct{}
	once  *sync.Once
}

func (c watched) Done() <-chan struct{} {
	c.once.Do(func() { close(c.waits) })
	return c.Context.Done()
}

func TestTheQueueInMemoryIsALockInTheOrderOfComing(t *testing.T) {
	l, err := openQueue(Env{})
	if err != nil {
		t.Fatal(err)
	}
	bounded, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	gone, leave := context.WithCancel(bounded)
	var order []int
	var all sync.WaitGroup
	// join returns when the goroutine is in line: who waits for a turn, or for the end of
	// the context, is. What it returns is closed when the goroutine has left.
	join := func(ctx context.Context, i int) (left chan struct{}) {
		left = make(chan struct{})
		w := watched{ctx, make(chan struct{}), new(sync.Once)}
		all.Go(func() {
			defer close(left)
			err := l.Do(w, "k", func(int64) { order = append(order, i) })
			if (err != nil) != (ctx == gone) {
				t.Errorf("%d was told %v", i, err)
			}
		})
		select {
		case <-w.waits:
		case <-left:
			t.Errorf("%d did not wait for the lock, which is held", i)
		case <-bounded.Done():
			t.Errorf("%d does not wait for the end of its context", i)
		}
		return left
	}
	if err := l.Do(bounded, "k", func(int64) {
		join(bounded, 0)
		join(bounded, 1)
		left := join(gone, 2)
		join(bounded, 3)
		join(bounded, 4)
		leave()
		select {
		case <-left:
		case <-bounded.Done():
			t.Error("who has gone waits on")
		}
	}); err != nil {
		t.Fatal(err)
	}
	all.Wait()
	if want := []int{0, 1, 3, 4}; !slices.Equal(order, want) {
		t.Errorf("granted in the order %v, want %v", order, want)
	}
}

func TestTheQueueAsksTheStoreForEachSoManyGrants(t *testing.T) {
	var asked atomic.Int64
	l := &queues{ask: func(string) (int64, error) { return asked.Add(1), nil }}
	var g guard
	for range 3 * atOnce {
		if err := l.Do(t.Context(), "k", func(token int64) {
			g.enter(visitor{goroutine: 1}, token, time.Time{})
			g.leave(visitor{goroutine: 1})
		}); err != nil {
			t.Fatal(err)
		}
	}
	// The fourth is for what comes next.
	if n := asked.Load(); n < 3 || n > 4 || g.violations() > 0 {
		t.Errorf("asked %d times for %d grants, %v violations", n, 3*atOnce, g.violations())
	}
}

// The tokens of a place in line are one above the other, and the server's clock may not have
// overtaken them when the next place is granted. A limit whose tokens fall is none.
func TestTokensOfBareLinesRiseWhenTheClockIsBehind(t *testing.T) {
	s := testserver.Redis(t)
	e := Env{Store: s.Addr(), TTL: lease}
	open, err := openBareLines(spanOfAClaim)(e)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	l, ahead := open.(*bareLines), time.Now().Add(time.Hour).UnixMicro()
	if _, err := s.Ask("SET", lineKeys("k")[0], strconv.FormatInt(ahead, 10)); err != nil {
		t.Fatal(err)
	}
	var first bareLine
	if err := l.join(t.Context(), "k", &first); err != nil {
		t.Fatal(err)
	}
	id, turn := fmt.Sprintf("%016d", 2), make(chan int64, 1)
	l.turns.Store(id, turn)
	if answer, err := bareJoin.Run(t.Context(), l.rdb, lineKeys("k"), l.channel+id, lease.Milliseconds()).Text(); answer != "w" {
		t.Fatalf("joining behind the first was answered with %q, %v", answer, err)
	}
	first.left = 1
	if err := l.grant(t.Context(), "k", &first, func(int64) {}); err != nil {
		t.Fatal(err)
	}
	second := <-turn
	first.token-- // grant took one
	if first.token < ahead+spanOfAClaim || second < first.token+spanOfAClaim {
		t.Errorf("places with %d tokens after %d were granted from %d and %d", spanOfAClaim, ahead, first.token, second)
	}
}
