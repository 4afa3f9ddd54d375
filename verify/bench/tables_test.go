package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testserver"
)

func TestPageHasAPlaceForEverythingThatIsMeasured(t *testing.T) {
	marker := regexp.MustCompile(`<!-- bench ([^>]*) -->`)
	text, err := os.ReadFile("tables.md")
	steps.Must(t, err)
	var places []string
	for _, m := range marker.FindAllStringSubmatch(string(text), -1) {
		places = append(places, m[1])
	}
	if n := strings.Count(string(text), "<!-- end -->"); n != len(places) {
		t.Errorf("the page has %d markers and %d ends", len(places), n)
	}
	sizes := map[string]int{}
	for _, c := range Cases() {
		for _, p := range c.parts {
			sizes[p.name] = p.size
		}
	}
	var all Report
	for _, p := range Peers() { // one result of everything there is
		for _, part := range p.Parts {
			part, _, _ = strings.Cut(part, "/")
			all.Results = append(all.Results, Result{part, sizes[part], p.Name, 0, Values{"p50_us": 1, "server_us": 1, "client_us": 1}})
		}
	}
	sections := all.sections()
	if len(sections) != len(places) {
		t.Errorf("the page has places for %d sections, and there are %d", len(places), len(sections))
	}
	for name := range sections {
		if !slices.Contains(places, name) {
			t.Errorf("the page has no place for %q", name)
		}
	}
}

func TestFillKeepsWhatWasNotMeasured(t *testing.T) {
	page := "a\n<!-- bench one -->\nold\n<!-- end -->\nb\n<!-- bench two -->\nkept\n<!-- end -->\nc\n"
	got, err := fill(page, map[string]string{"one": "new\n"})
	steps.Must(t, err)
	want := "a\n<!-- bench one -->\n\nnew\n\n<!-- end -->\nb\n<!-- bench two -->\nkept\n<!-- end -->\nc\n"
	if got != want {
		t.Errorf("got %q\nwant %q", got, want)
	}
	again, err := fill(got, map[string]string{"one": "new\n"})
	if err != nil || again != got {
		t.Errorf("filled twice: %q, %v", again, err)
	}
	if _, err := fill("<!-- bench one -->\nnever ends", nil); err == nil {
		t.Error("a part without an end is no error")
	}
}

func TestWhatJSONHasNoWordForIsLeftOut(t *testing.T) {
	b := &Bench{}
	b.record(Result{"free", 1, ours, 3, Values{"p50_us": 2, "p99_us": math.NaN(), "allocs": math.Inf(1), "violations": 1}})
	text, err := json.Marshal(b.report)
	steps.Must(t, err)
	want := `{"about":null,"results":[{"part":"free","size":1,"peer":"fencelock","round":3,"values":{"p50_us":2,"violations":1}}]}`
	if string(text) != want || b.violations != 1 {
		t.Errorf("written as %s, with %d violations", text, b.violations)
	}
}

func TestTargetsAreJudgedFromWhatWasMeasured(t *testing.T) {
	free := func(peer string, round int, p50, requests float64) Result {
		return Result{"free", 1, peer, round, Values{"p50_us": p50, "requests": requests, "allocs": 10}}
	}
	for _, tt := range []struct {
		name           string
		p50, requests  float64
		quick, twoOnly bool
	}{
		{"as quick as it must be", 22, 2, true, true},
		{"too slow", 24, 2, false, true},
		{"a request too many", 22, 3, true, false},
	} {
		rs := results{free(floor, 0, 20, 2), free(ours, 0, tt.p50, tt.requests), free(bsm, 0, 30, 2)}
		var out bytes.Buffer
		(&Report{Results: rs}).printTargets(&out)
		for what, holds := range map[string]bool{"Redis: p50, × raw": tt.quick, "Redis: requests": tt.twoOnly} {
			verdict := "| yes |"
			if !holds {
				verdict = "| **no** |"
			}
			found := false
			for line := range strings.Lines(out.String()) {
				found = found || strings.Contains(line, what) && strings.Contains(line, verdict)
			}
			if !found {
				t.Errorf("%s: %q is not %s in\n%s", tt.name, what, verdict, out.String())
			}
		}
	}
	for _, target := range targets() {
		if value, _ := target.measured(nil); !math.IsNaN(value) {
			t.Errorf("%s is judged of nothing at all", target.what)
		}
	}
}

func TestCountersOfRedisAreAdded(t *testing.T) {
	var c counters
	for range 2 { // servers
		c.add(map[string]map[string]string{
			"Commandstats": {"cmdstat_set": "calls=7,usec=9", "cmdstat_evalsha": "calls=3,usec=1", "cmdstat_get": "calls=5,usec=1"},
			"CPU":          {"used_cpu_sys_main_thread": "0.5", "used_cpu_user_main_thread": "1.25", "used_cpu_sys": "9"},
		}, []string{"set"})
	}
	if c.requests != 20 || c.cpu != 3.5 {
		t.Errorf("counted %v requests and %v s; want 20 and 3.5", c.requests, c.cpu)
	}
}

func TestNumbersAreShortAndWhole(t *testing.T) {
	for x, want := range map[float64]string{
		0: "0", 2e-5: "0", 0.0314: "0.031", 1.5: "1.50", 12.34: "12.3", 1234.5: "1234", 12345: "12 345", 1234567: "1 234 567", -12345: "-12 345",
	} {
		if got := short(x); got != want {
			t.Errorf("short(%v) = %q, want %q", x, got, want)
		}
	}
}

func TestStatistics(t *testing.T) {
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[i] = time.Duration(i + 1)
	}
	four := []float64{4, 1, 3, 2}
	for _, c := range []struct {
		what      string
		got, want float64
	}{
		{"Jain: all get the same", jain([]int64{7, 7, 7, 7}), 1},
		{"Jain: one gets everything", jain([]int64{12, 0, 0, 0}), 0.25},
		{"Jain: nobody gets anything", jain([]int64{0, 0}), 0},
		{"Jain: nobody is there", jain(nil), 0},
		{"the least of a hundred", percentile(hundred, 0), 1},
		{"the 50th percentile", percentile(hundred, 50), 50},
		{"the percentile 99.5", percentile(hundred, 99.5), 100},
		{"a percentile is a value that was measured", percentile([]time.Duration{3, 9}, 50), 3},
		{"a percentile of nothing", percentile(nil, 50), math.NaN()},
		{"the median of three", median([]float64{5, 1, 3}), 3},
		{"the median of four", median(four), 2.5},
		{"the median leaves its argument alone", four[0], 4},
		{"the median of nothing", median(nil), math.NaN()},
	} {
		if math.IsNaN(c.got) != math.IsNaN(c.want) || math.Abs(c.got-c.want) > 1e-12 {
			t.Errorf("%s is %v, want %v", c.what, c.got, c.want)
		}
	}
}

func TestRatioIsTakenWithinEachRound(t *testing.T) {
	// The machine is ten times slower in the second round, for both.
	table := results{
		{Peer: "a", Round: 0, Values: Values{"rate": 20}}, {Peer: "b", Round: 0, Values: Values{"rate": 10}},
		{Peer: "a", Round: 1, Values: Values{"rate": 2}}, {Peer: "b", Round: 1, Values: Values{"rate": 1}},
		{Peer: "a", Round: 2, Values: Values{"rate": 30}}, {Peer: "b", Round: 2, Values: Values{"rate": 10}},
	}
	steps.Same(t, "the ratio", table.ratio("a", "b", "rate"), 2)
	steps.Same(t, "the median", table.value("a", "rate"), 20)
	if got := table.ratio("a", "nobody", "rate"); !math.IsNaN(got) {
		t.Errorf("the ratio to nobody is %v, want NaN", got)
	}
}

func TestGuardCountsWhatMustNotHappen(t *testing.T) {
	one, two := visitor{goroutine: 1}, visitor{goroutine: 2}
	var g guard
	now := time.Now()
	g.enter(one, 5, now)
	g.leave(one)
	g.enter(two, 6, now)
	g.leave(two)
	if n := g.violations(); n != 0 {
		t.Errorf("one after the other, with tokens that rise: %v violations", n)
	}
	g.enter(one, 6, now)
	if n := g.violations(); n != 1 {
		t.Errorf("a token that does not rise: %v violations in all", n)
	}
	g.enter(two, 7, now)
	if n := g.violations(); n != 2 {
		t.Errorf("a second one inside: %v violations in all", n)
	}
}

func TestGuardMeasuresHandOversToWhoWaited(t *testing.T) {
	here, there := visitor{process: 1, goroutine: 1, clock: true}, visitor{process: 2, goroutine: 1, clock: true}
	var g guard
	before := time.Now().Add(-time.Second)
	g.enter(here, 1, before)
	g.leave(here)
	if d := g.enter(there, 2, before); d <= 0 || d > time.Minute {
		t.Errorf("to one who waited: %v", d)
	}
	g.leave(there)
	steps.Same(t, "to one who came later", g.enter(here, 3, time.Now().Add(time.Second)), 0)
}

func TestWorkersSeeALockThatExcludesNobody(t *testing.T) {
	open := &library[struct{}]{
		lock:   func(context.Context, string) (none struct{}, err error) { return none, nil },
		unlock: func(context.Context, string, struct{}) error { return nil },
		token:  func(struct{}) int64 { return 1 },
	}
	g := new(guard)
	ws := onOneKey(open, 8, "k", g)
	ws.start()
	testserver.Eventually(t, time.Minute, "two are inside at once", func() bool { return g.violations() > 0 })
	steps.Must(t, ws.stop())
	if ws.violations() == 0 {
		t.Error("eight goroutines with one token and no lock broke nothing")
	}
}

func TestReleaseSaysWhetherTheLockWasLost(t *testing.T) {
	for _, lost := range []error{nil, errors.New("lost")} {
		renewed := make(chan bool, 1)
		l := &library[int]{
			lock:   func(context.Context, string) (int, error) { return 7, nil },
			unlock: func(context.Context, string, int) error { return nil },
			ttl:    3 * time.Millisecond,
			extend: func(_ context.Context, held int) error {
				select {
				case renewed <- held == 7:
				default:
				}
				return lost
			},
		}
		held, err := l.Hold(t.Context(), "k")
		if err != nil || !<-renewed {
			t.Fatalf("it renews another lock: %v", err)
		}
		steps.Is(t, "released with", l.Release(t.Context(), held), lost)
	}
}
