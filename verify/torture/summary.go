package torture

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

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
