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

// heads are the columns that tables may have, by the names of their values. OP is what a
// part counts: pairs of lock and unlock, grants, hand-overs.
var heads = map[string]string{
	"pairs_per_s": "pairs/s", "p50_us": "p50 µs", "p99_us": "p99 µs", "p50_ms": "p50 wait ms", "p99_ms": "p99 wait ms",
	"requests": "requests/OP", "server_us": "server CPU µs/OP", "client_us": "client CPU µs/OP",
	"allocs": "allocs/OP", "bytes": "bytes/OP", "violations": "violations",
	"handovers_per_s": "hand-overs/s", "jain": "Jain",
	"crossings_per_s": "of these between processes", "crossing_p50_us": "their p50 µs",
	"stranger_p50_ms": "the other's p50 wait ms", "stranger_p99_ms": "p99", "stranger_grants": "its grants",
	"requests_per_s": "requests/s", "requests_share": "% of the leases renewed/s",
	"cpu_percent": "client CPU %", "server_percent": "server CPU %", "lease_bytes": "bytes/lease",
	"lease_goroutines": "goroutines/lease", "acquired_per_s": "acquired/s", "lost": "lost",
	"ping_p50_us": "p50 of a PING, µs", "ping_p99_us": "its p99 µs",
	"waiter_kb": "kB of memory/client", "joined_per_s": "joined/s", "first_ms": "hand-over to the first, ms",
}

// What the tables show, in order. With × it is the ratio to the base of the part.
const (
	freeColumns        = "p50_us ×p50_us p99_us requests server_us client_us allocs bytes violations"
	serviceFreeColumns = "p50_us ×p50_us p99_us requests server_us client_us violations"
	handOverColumns    = "crossing_p50_us ×crossing_p50_us requests server_us client_us violations"
	waitingColumns     = "waiter_kb joined_per_s first_ms"
	storeFreeColumns   = "p50_us ×p50_us p99_us client_us allocs violations"
	keysColumns        = "pairs_per_s ×pairs_per_s p50_us p99_us requests server_us client_us violations"
	pingColumns        = "ping_p50_us ping_p99_us ×ping_p99_us pairs_per_s violations"
	hotColumns         = "handovers_per_s ×handovers_per_s jain p50_ms p99_ms requests server_us client_us violations"
	betweenColumns     = "handovers_per_s ×handovers_per_s crossings_per_s crossing_p50_us jain p50_ms p99_ms " +
		"requests server_us client_us violations"
	strangerColumns = "stranger_p50_ms stranger_p99_ms stranger_grants handovers_per_s violations"
	lineColumns     = "server_us requests handovers_per_s jain client_us violations"
	heldColumns     = "requests_per_s requests_share cpu_percent server_percent lease_bytes lease_goroutines " +
		"acquired_per_s lost"
)

// of is one number of a table: the median over the rounds, a ratio, or a sum.
func (p part) of(rs results, peer, column string) (x float64) {
	if name, ok := strings.CutPrefix(column, "×"); ok {
		return rs.ratio(peer, p.base, name)
	}
	if column != "violations" && column != "lost" {
		return rs.value(peer, column)
	}
	for _, one := range rs.values(peer, column) {
		x += one
	}
	return x
}

// write prints the table of a part as Markdown, with its title in bold. rs are its results.
// A column without a value is left out.
func (p part) write(w io.Writer, rs results) {
	peers := rs.peers()
	columns := slices.DeleteFunc(strings.Fields(p.columns), func(c string) bool {
		return !slices.ContainsFunc(peers, func(peer string) bool { return !math.IsNaN(p.of(rs, peer, c)) })
	})
	fmt.Fprintf(w, "**%s**\n\n| |", p.title)
	for _, c := range columns {
		head := strings.ReplaceAll(heads[c], "OP", p.op)
		if strings.HasPrefix(c, "×") {
			head = "× " + p.baseHead
		}
		fmt.Fprintf(w, " %s |", head)
	}
	fmt.Fprintf(w, "\n| --- |%s\n", strings.Repeat(" --: |", len(columns)))
	for _, peer := range peers {
		fmt.Fprintf(w, "| %s |", peer)
		for _, c := range columns {
			fmt.Fprintf(w, " %s |", short(p.of(rs, peer, c)))
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
