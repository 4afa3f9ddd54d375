package torture

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Markdown writes what came of several runs as tables: a row for each store, and the
// faults by kind.
func Markdown(w io.Writer, rs []*Result) error {
	var b strings.Builder
	table := func(head []string, rows [][]string) {
		line := func(cells []string) { b.WriteString("| " + strings.Join(cells, " | ") + " |\n") }
		line(head)
		rule := slices.Repeat([]string{"--:"}, len(head))
		rule[0] = "---"
		line(rule)
		for _, r := range rows {
			line(r)
		}
	}
	ms := func(d time.Duration) string { return d.Round(time.Millisecond).String() }
	var rows [][]string
	kinds := map[string]bool{}
	names := []string{"fault"}
	for _, r := range rs {
		n := r.Numbers
		faults := 0
		for kind, times := range n.Faults {
			kinds[kind] = true
			faults += times
		}
		names = append(names, r.Name)
		agree := "yes"
		if n.Disagreed > 0 {
			agree = fmt.Sprintf("**no**, on %d keys", n.Disagreed)
		}
		rows = append(rows, []string{
			r.Name, fmt.Sprint(r.Seed), r.For.Round(time.Second).String(), r.TTL.String(),
			fmt.Sprint(n.Asked), fmt.Sprint(n.Held), fmt.Sprint(faults), fmt.Sprint(n.Ambiguous),
			fmt.Sprint(len(r.Violations)), fmt.Sprint(n.Stuck), ms(n.Epsilon), ms(n.LongestGap), ms(n.AfterFault),
			fmt.Sprint(n.Operations), agree, fmt.Sprint(n.TimedOut),
		})
	}
	table([]string{
		"store", "seed", "time of faults", "lease", "operations", "grants", "faults", "ambiguous outcomes", "violations", "stuck locks",
		"ε", "longest gap behind a vanished holder", "after an outage", "put in order by the model", "sweep and model agree", "model timed out",
	}, rows)
	b.WriteString("\n")
	rows = nil
	for _, kind := range sorted(kinds) {
		row := []string{"`" + kind + "`"}
		for _, r := range rs {
			times := "–"
			if n := r.Numbers.Faults[kind]; n > 0 {
				times = fmt.Sprint(n)
			}
			row = append(row, times)
		}
		rows = append(rows, row)
	}
	table(names, rows)
	_, err := io.WriteString(w, b.String())
	return err
}

func sorted(set map[string]bool) []string {
	var all []string
	for s := range set {
		all = append(all, s)
	}
	slices.Sort(all)
	return all
}
