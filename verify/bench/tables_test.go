package bench

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/drivertest/steps"
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
