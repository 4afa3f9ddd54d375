package mutants

import (
	"fmt"
	"regexp"
	"strings"
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
	b.WriteString(head)
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
}

var row = regexp.MustCompile("^\\| (.+) \\| `(.+)` \\| `(.+)` in `(.+)` \\| \\d+ s \\|")

// Read reads a line of the table.
func Read(line string) (t Told, ok bool) {
	m := row.FindStringSubmatch(line)
	if m == nil {
		return t, false
	}
	return Told{m[1], m[2], m[3], m[4]}, true
}

// Lines reads a table: its lines by the names of the mutants.
func Lines(table string) map[string]string {
	lines := map[string]string{}
	for l := range strings.Lines(table) {
		if t, ok := Read(l); ok {
			lines[t.Name] = strings.TrimSpace(l)
		}
	}
	return lines
}
