package torture

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fencelock/fencelock/internal/history"
	"github.com/fencelock/fencelock/verify/model"
	"github.com/fencelock/fencelock/verify/traffic"
)

// writeReport writes report.txt into the folder of the run: the summary, and the history lines
// of the first breaches. It draws a page of the model's for the first keys that it refuses.
func (r *Result) writeReport(lines []traffic.Line) error {
	keys := slices.Sorted(maps.Keys(r.Illegal))
	for _, key := range keys[:min(len(keys), 3)] {
		name := "model-" + strings.ReplaceAll(key, "/", "-") + ".html"
		if err := model.Draw(r.Illegal[key], 5*time.Second, filepath.Join(r.Dir, name)); err != nil {
			return err
		}
	}
	f, err := os.Create(filepath.Join(r.Dir, "report.txt"))
	if err != nil {
		return err
	}
	defer f.Close()
	fmt.Fprintf(f, "%d breaches\n", len(r.Violations))
	r.Summary(f)
	fmt.Fprintf(f, "  grants by use: %v\n  history lines by kind: %v\n", r.Numbers.ByWay, r.Numbers.Lines)
	for _, v := range r.Violations[:min(len(r.Violations), 20)] {
		fmt.Fprintf(f, "\n%v, after %v\n", v, v.At-time.Duration(lines[0].At))
		writeNear(f, lines, v)
	}
	return f.Close()
}

// writeNear writes the lines of the claims that clash, those of the same key within 100 ms, and
// the faults within two seconds.
func writeNear(w io.Writer, lines []traffic.Line, v history.Violation) {
	for _, l := range lines {
		mine := l.Claim != "" && (l.Claim == v.First.Claim || l.Claim == v.Second.Claim)
		away := time.Duration(l.At) - v.At
		beside := l.Key == v.Key && away.Abs() < 100*time.Millisecond
		fault := l.Key == "" && l.Op != traffic.Tick && away.Abs() < 2*time.Second
		if !mine && !beside && !fault || l.Op == traffic.Final {
			continue
		}
		mark := " "
		if mine {
			mark = "▶"
		}
		fmt.Fprintf(w, "%s %+10.3f ms  %-11s %-14s token %d %s\n",
			mark, float64(away)/1e6, l.Op, cmp.Or(l.Claim, l.Proc), l.Token, l.Text)
	}
}

// again is the command that runs it again.
func (o Options) again() string {
	where := "-start " + o.Start
	if o.Start == "" {
		where = "-url …"
	}
	if o.Service != "" {
		where += " -service " + o.Service
	}
	return fmt.Sprintf("go run ./cmd/torture %s -for %v -seed %d -faults %s -ttl %v",
		where, o.For, o.Seed, o.Faults, o.TTL)
}

// Summary is what to print: the numbers, and each breach.
func (r *Result) Summary(w io.Writer) {
	for _, c := range columns {
		fmt.Fprintf(w, "  %-37s %v\n", c.head, c.cell(r))
	}
	n := r.Numbers
	fmt.Fprintf(w, "  faults by kind: %v; a holder was told late by %s at most\n", n.Faults, ms(n.ToldLate))
	fmt.Fprintf(w, "  sets: %d updates lost without the guard, %d late ones refused by it\n",
		n.LostUpdates, n.Lines["denied"])
	for i, v := range r.Violations {
		if i == 10 {
			fmt.Fprintf(w, "  and %d more\n", len(r.Violations)-i)
			break
		}
		fmt.Fprintf(w, "  VIOLATION %v\n", v)
	}
	if len(r.Violations) > 0 && r.Again != "" {
		fmt.Fprintf(w, "  to run it again: %s\n", r.Again)
	}
	fmt.Fprintf(w, "  history and report: %s\n", r.Dir)
}

func ms(d time.Duration) string { return d.Round(time.Millisecond).String() }

// columns are what the table of runs says of each.
var columns = []struct {
	head string
	cell func(*Result) any
}{
	{"store", func(r *Result) any { return r.Name }},
	{"seed", func(r *Result) any { return r.Seed }},
	{"time of faults", func(r *Result) any { return r.For.Round(time.Second) }},
	{"lease", func(r *Result) any { return r.TTL }},
	{"operations", func(r *Result) any { return r.Numbers.Asked }},
	{"grants", func(r *Result) any { return r.Numbers.Held }},
	{"faults", func(r *Result) any { return r.faults() }},
	{"ambiguous outcomes", func(r *Result) any { return r.Numbers.Ambiguous }},
	{"violations", func(r *Result) any { return len(r.Violations) }},
	{"stuck locks", func(r *Result) any { return r.Numbers.Stuck }},
	{"ε", func(r *Result) any { return ms(r.Numbers.Epsilon) }},
	{"longest gap behind a vanished holder", func(r *Result) any { return ms(r.Numbers.LongestGap) }},
	{"after an outage", func(r *Result) any { return ms(r.Numbers.AfterFault) }},
	{"put in order by the model", func(r *Result) any { return r.Numbers.Operations }},
	{"sweep and model agree", func(r *Result) any {
		if n := r.Numbers.Disagreed; n > 0 {
			return fmt.Sprintf("**no**, on %d keys", n)
		}
		return "yes"
	}},
	{"model timed out", func(r *Result) any { return r.Numbers.TimedOut }},
}

// faults is how many there were of all kinds.
func (r *Result) faults() (n int) {
	for _, times := range r.Numbers.Faults {
		n += times
	}
	return n
}

// Markdown is what came of several runs as tables: a row for each store, and the
// faults by kind.
func Markdown(rs []*Result) string {
	runs := [][]string{nil}
	for _, c := range columns {
		runs[0] = append(runs[0], c.head)
	}
	kinds := map[string]bool{}
	faults := [][]string{{"fault"}}
	for _, r := range rs {
		var row []string
		for _, c := range columns {
			row = append(row, fmt.Sprint(c.cell(r)))
		}
		runs = append(runs, row)
		faults[0] = append(faults[0], r.Name)
		for kind := range r.Numbers.Faults {
			kinds[kind] = true
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		row := []string{"`" + kind + "`"}
		for _, r := range rs {
			times := "–"
			if n := r.Numbers.Faults[kind]; n > 0 {
				times = fmt.Sprint(n)
			}
			row = append(row, times)
		}
		faults = append(faults, row)
	}
	return table(runs) + "\n" + table(faults)
}

// table is a table of Markdown whose first row is its head.
func table(rows [][]string) string {
	rule := slices.Repeat([]string{"--:"}, len(rows[0]))
	rule[0] = "---"
	var b strings.Builder
	for _, row := range slices.Insert(rows, 1, rule) {
		b.WriteString("| " + strings.Join(row, " | ") + " |\n")
	}
	return b.String()
}
