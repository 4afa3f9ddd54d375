//go:build unix

package torture

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/history"
	"github.com/fencelock/fencelock/verify/check"
)

func TestMarkdownIsTheNumbers(t *testing.T) {
	one := &Result{Name: "redis", Seed: 7, For: 5 * time.Minute, TTL: time.Second, Verdict: &check.Verdict{Numbers: check.Numbers{
		Asked: 900, Held: 300, Ambiguous: 12, Faults: map[string]int{"kill": 3, "cut": 4}, Epsilon: 21_400 * time.Microsecond,
		LongestGap: 1500 * time.Millisecond, AfterFault: 70 * time.Millisecond, Operations: 880,
	}}}
	two := &Result{Name: "etcd", Seed: 7, For: 5 * time.Minute, TTL: 2 * time.Second, Verdict: &check.Verdict{
		Violations: make([]history.Violation, 4), Numbers: check.Numbers{Stuck: 2, Disagreed: 1, TimedOut: 1, Faults: map[string]int{"kill": 5}},
	}}
	text := Markdown([]*Result{one, two})
	for _, want := range []string{
		"| redis | 7 | 5m0s | 1s | 900 | 300 | 7 | 12 | 0 | 0 | 21ms | 1.5s | 70ms | 880 | yes | 0 |\n",
		"| etcd | 7 | 5m0s | 2s | 0 | 0 | 5 | 0 | 4 | 2 | 0s | 0s | 0s | 0 | **no**, on 1 keys | 1 |\n",
		"| fault | redis | etcd |\n", "| `cut` | 4 | – |\n", "| `kill` | 3 | 5 |\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %q in\n%s", want, text)
		}
	}
	columns := -1
	for line := range strings.Lines(text) {
		n := strings.Count(line, "|")
		if n > 0 && columns > 0 && n != columns {
			t.Errorf("%d columns, and %d above: %s", n, columns, line)
		}
		columns = n
	}
}

// A folder holds one history: two in one would be judged as if they were one.
func TestHistoriesAreNotMixed(t *testing.T) {
	o := Options{Start: "memory", Table: allServices(), For: 300 * time.Millisecond, Seed: 1, Faults: "none", TTL: 200 * time.Millisecond, Dir: t.TempDir()}
	steps.Must(t, steps.ErrOf(Run(context.Background(), o)))
	if _, err := Run(context.Background(), o); err == nil || !strings.Contains(err.Error(), "there is a history in") {
		t.Errorf("%v; want that there is a history already", err)
	}
}
