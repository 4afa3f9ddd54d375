package bench

import (
	"fmt"
	"io"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
)

// column is one number of a table: the median over the rounds, or their sum. With a base
// it is the ratio to that library.
type column struct {
	name, head string
	base       string
	scale      float64 // of what is printed; 0 is 1
	sum        bool
}

// Columns that several tables have.
var (
	violations = column{name: "violations", head: "violations", sum: true}
	requests   = column{name: "requests", head: "requests/pair"}
	serverCPU  = column{name: "server_us", head: "server CPU µs/pair"}
	clientCPU  = column{name: "client_us", head: "client CPU µs/pair"}
	p50        = column{name: "p50_us", head: "p50 µs"}
	p99        = column{name: "p99_us", head: "p99 µs"}
	handovers  = column{name: "handovers_per_s", head: "hand-overs/s"}
	fairness   = column{name: "jain", head: "Jain"}
)

// over is the ratio of a column to that of base.
func over(name, head, base string) column {
	return column{name: name, head: "× " + head, base: base}
}

// inMs is a column whose values are µs, printed as ms.
func inMs(name, head string) column { return column{name: name, head: head, scale: 1e-3} }

// freeColumns are those of a free lock.
func freeColumns(head, base string) []column {
	return []column{p50, over("p50_us", head, base), p99, requests, serverCPU, clientCPU,
		{name: "allocs", head: "allocs/pair"}, {name: "bytes", head: "bytes/pair"}, violations}
}

// keysColumns are those of many keys.
func keysColumns(head, base string) []column {
	return []column{{name: "pairs_per_s", head: "pairs/s"}, over("pairs_per_s", head, base), p50, p99,
		requests, serverCPU, clientCPU, violations}
}

// contended are the columns of a hot key.
func contended(base string) []column {
	return []column{
		handovers, over("handovers_per_s", base, base), fairness,
		inMs("p50_us", "p50 wait ms"), inMs("p99_us", "p99 wait ms"),
		{name: "requests", head: "requests/grant"},
		{name: "server_us", head: "server CPU µs/grant"},
		{name: "client_us", head: "client CPU µs/grant"}, violations,
	}
}

// between are the columns of a key that several processes want.
func between(base string) []column {
	return slices.Insert(contended(base), 2,
		column{name: "crossings_per_s", head: "of these between processes"},
		column{name: "crossing_p50_us", head: "their p50 µs"})
}

var (
	strangerColumns = []column{
		inMs("stranger_p50_us", "the other's p50 wait ms"), inMs("stranger_p99_us", "p99"),
		{name: "stranger_grants", head: "its grants"}, handovers, violations,
	}
	lineColumns = []column{
		{name: "server_us", head: "server CPU µs/hand-over"}, {name: "requests", head: "requests/hand-over"},
		handovers, fairness, {name: "client_us", head: "client CPU µs/hand-over"}, violations,
	}
	heldColumns = []column{
		{name: "requests_per_s", head: "requests/s"},
		{name: "requests_share", head: "% of the leases renewed/s"},
		{name: "cpu_percent", head: "client CPU %"}, {name: "server_percent", head: "server CPU %"},
		{name: "bytes", head: "bytes/lease"}, {name: "goroutines", head: "goroutines/lease"},
		{name: "acquired_per_s", head: "acquired/s"}, {name: "lost", head: "lost", sum: true},
	}
)

// of is one number of a table.
func (rs results) of(peer string, c column) (x float64) {
	switch {
	case c.sum:
		for _, one := range rs.values(peer, c.name) {
			x += one
		}
	case c.base != "":
		x = rs.ratio(peer, c.base, c.name)
	default:
		x = rs.value(peer, c.name)
	}
	if c.scale != 0 {
		x *= c.scale
	}
	return x
}

// write prints the table of a part as Markdown, with its title in bold. rs are its results.
// A column without a value is left out.
func (p part) write(w io.Writer, rs results) {
	fmt.Fprintf(w, "**%s**\n\n| |", p.title)
	peers := rs.peers()
	shown := slices.DeleteFunc(slices.Clone(p.columns), func(c column) bool {
		return !slices.ContainsFunc(peers, func(peer string) bool { return !math.IsNaN(rs.of(peer, c)) })
	})
	for _, c := range shown {
		fmt.Fprintf(w, " %s |", c.head)
	}
	fmt.Fprintf(w, "\n| --- |%s\n", strings.Repeat(" --: |", len(shown)))
	for _, peer := range peers {
		fmt.Fprintf(w, "| %s |", peer)
		for _, c := range shown {
			fmt.Fprintf(w, " %s |", short(rs.of(peer, c)))
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintln(w)
}

// tables returns the tables of what was measured, by the section of the page. A free lock
// comes first in its section.
func (rs results) tables() (names []string, sections map[string]string) {
	sections = map[string]string{}
	for _, c := range Cases() {
		free := slices.DeleteFunc(slices.Clone(c.parts), func(p part) bool { return p.size != 1 })
		rest := slices.DeleteFunc(slices.Clone(c.parts), func(p part) bool { return p.size == 1 })
		for _, p := range append(free, rest...) {
			some := rs.part(p.name, p.size)
			if len(some) == 0 {
				continue
			}
			name, _, _ := strings.Cut(p.name, " ")
			if sections[name] == "" {
				names = append(names, name)
			}
			var text strings.Builder
			p.write(&text, some)
			sections[name] += text.String()
		}
	}
	return names, sections
}

// Print prints all tables, and which targets the run has reached.
func (r *Report) Print(w io.Writer) {
	names, sections := results(r.Results).tables()
	for _, name := range names {
		fmt.Fprint(w, sections[name])
	}
	r.printTargets(w)
}

// Write puts the report into a Markdown page, between its markers. A part that this run
// has not measured stays as it is.
func (r *Report) Write(page string) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	filled, err := fill(string(text), r.sections())
	if err != nil {
		return fmt.Errorf("%s: %w", page, err)
	}
	return os.WriteFile(page, []byte(filled), 0o644)
}

// sections are the texts between the markers, by their names.
func (r *Report) sections() map[string]string {
	_, sections := results(r.Results).tables()
	var targets strings.Builder
	r.printTargets(&targets)
	sections["run"], sections["targets"] = r.describe(), targets.String()
	return sections
}

var marked = regexp.MustCompile(`(?s)<!-- bench (\w+) -->\n(.*?)<!-- end -->`)

// fill replaces the text between each <!-- bench NAME --> and <!-- end -->.
func fill(page string, sections map[string]string) (string, error) {
	if n := len(marked.FindAllString(page, -1)); n != strings.Count(page, "<!-- bench ") {
		return "", fmt.Errorf("a marker has no <!-- end -->")
	}
	return marked.ReplaceAllStringFunc(page, func(old string) string {
		name := marked.FindStringSubmatch(old)[1]
		text, ok := sections[name]
		if !ok {
			return old
		}
		// Without blank lines it is no Markdown.
		return fmt.Sprintf("<!-- bench %s -->\n\n%s\n\n<!-- end -->", name, strings.TrimRight(text, "\n"))
	}), nil
}

// short writes a number with three significant digits.
func short(x float64) string {
	switch {
	case math.IsNaN(x):
		return "–"
	case math.Abs(x) < 0.0005:
		return "0"
	case x == math.Trunc(x), math.Abs(x) >= 100:
		return thousands(x)
	case math.Abs(x) >= 10:
		return fmt.Sprintf("%.1f", x)
	case math.Abs(x) >= 1:
		return fmt.Sprintf("%.2f", x)
	}
	return fmt.Sprintf("%.3f", x)
}

// thousands writes a whole number with spaces between thousands, from ten thousand on.
func thousands(x float64) string {
	s := fmt.Sprintf("%.0f", x)
	if len(strings.TrimPrefix(s, "-")) < 5 {
		return s
	}
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + " " + s[i:]
	}
	return s
}
