package mutants

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

const head = "# What notices when a rule is taken out\n\n" +
	"Each line is this library with one line of its own broken, and the first test that failed.\n" +
	"Written by `go run ./cmd/mutants`, in the folder verify. The tests are called as CI calls\n" +
	"them, with the race detector; the time has the building in it.\n"

// Line is v as a line of the table.
func (v Verdict) Line() string {
	return fmt.Sprintf("| %s | `%s` | `%s` in `%s` | %.0f s |", v.Name, v.File, v.Failed, v.Test.Dir, v.Took.Seconds())
}

// Table is the table of all mutants, with the line of each by its name. Those that have
// none were not run.
func Table(lines map[string]string) string {
	var b strings.Builder
	b.WriteString(head + "\n" + summary(lines))
	for _, s := range Sections() {
		fmt.Fprintf(&b, "\n## Rules of %s\n\n", s.Name)
		b.WriteString("| broken | where | noticed by | after |\n| --- | --- | --- | --: |\n")
		for _, m := range s.Mutants {
			if l := lines[m.Name]; l != "" {
				b.WriteString(l + "\n")
			}
		}
	}
	return b.String()
}

// Told is what a line of the table says.
type Told struct {
	Name, File, Failed, Package string
	Took                        time.Duration
}

// Read reads a line of the table.
func Read(line string) (t Told, ok bool) {
	cells := strings.Split(strings.TrimSuffix(strings.TrimPrefix(line, "| "), " |"), " | ")
	if len(cells) != 4 || !strings.HasPrefix(cells[1], "`") {
		return t, false
	}
	t.Name, t.File = cells[0], strings.Trim(cells[1], "`")
	t.Failed, t.Package, ok = strings.Cut(strings.Trim(cells[2], "`"), "` in `")
	seconds, err := strconv.Atoi(strings.TrimSuffix(cells[3], " s"))
	t.Took = time.Duration(seconds) * time.Second
	return t, ok && err == nil
}

// Lines reads a table: its lines by the names of the mutants.
func Lines(table string) map[string]string {
	lines := map[string]string{}
	for l := range strings.Lines(table) {
		l = strings.TrimRight(l, "\n")
		if t, ok := Read(l); ok {
			lines[t.Name] = l
		}
	}
	return lines
}

// summary says how many mutants there are, and how long it took to notice them.
func summary(lines map[string]string) string {
	var b strings.Builder
	b.WriteString("| rules of | mutants | noticed | after, in the middle | at the latest |\n")
	b.WriteString("| --- | --: | --: | --: | --: |\n")
	var all []time.Duration
	total := 0
	row := func(name string, n int, took []time.Duration) {
		slices.Sort(took)
		middle, last := time.Duration(0), time.Duration(0)
		if len(took) > 0 {
			middle, last = took[len(took)/2], took[len(took)-1]
		}
		fmt.Fprintf(&b, "| %s | %d | %d | %.0f s | %.0f s |\n", name, n, len(took), middle.Seconds(), last.Seconds())
	}
	for _, s := range Sections() {
		var took []time.Duration
		for _, m := range s.Mutants {
			if t, ok := Read(lines[m.Name]); ok {
				took = append(took, t.Took)
			}
		}
		row(s.Name, len(s.Mutants), took)
		all = append(all, took...)
		total += len(s.Mutants)
	}
	row("all", total, all)
	return b.String()
}
