package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
)

// result is what one library did in one round.
type result struct {
	Case   string `json:"case"`
	Size   int    `json:"size"`
	Peer   string `json:"peer"`
	Round  int    `json:"round"`
	Values Values `json:"values"`
}

// results are all rounds of one case.
type results []result

// value is the median over the rounds, NaN if it was not measured.
func (rs results) value(peer, name string) float64 {
	var xs []float64
	for _, r := range rs {
		if x, ok := r.Values[name]; ok && r.Peer == peer {
			xs = append(xs, x)
		}
	}
	return median(xs)
}

// sum is that of all rounds.
func (rs results) sum(peer, name string) (sum float64) {
	for _, r := range rs {
		if r.Peer == peer {
			sum += r.Values[name]
		}
	}
	return sum
}

// ratio is the median of the ratios within each round.
func (rs results) ratio(peer, base, name string) float64 {
	below := map[int]float64{}
	for _, r := range rs {
		if x, ok := r.Values[name]; ok && r.Peer == base {
			below[r.Round] = x
		}
	}
	var xs []float64
	for _, r := range rs {
		x, ok := r.Values[name]
		if y := below[r.Round]; ok && r.Peer == peer && y != 0 {
			xs = append(xs, x/y)
		}
	}
	return median(xs)
}

// peers are the libraries in the order of the list.
func (rs results) peers() (names []string) {
	for _, p := range Peers() {
		for _, r := range rs {
			if r.Peer == p.Name {
				names = append(names, p.Name)
				break
			}
		}
	}
	return names
}

// column is one number of a table: the median over the rounds, or what of says of
// them. With a base it is the ratio to that library.
type column struct {
	name, head, base string
	of               aggregate
}

type aggregate int

const (
	middle aggregate = iota
	sum
	least
)

// of is one cell of a table.
func (rs results) of(peer string, c column) float64 {
	switch {
	case c.of == sum:
		return rs.sum(peer, c.name)
	case c.of == least && c.base != "":
		return rs.least(peer, c.name) / rs.least(c.base, c.name)
	case c.of == least:
		return rs.least(peer, c.name)
	case c.base != "":
		return rs.ratio(peer, c.base, c.name)
	}
	return rs.value(peer, c.name)
}

// least is that of all rounds.
func (rs results) least(peer, name string) float64 {
	least := math.NaN()
	for _, r := range rs {
		if x, ok := r.Values[name]; ok && r.Peer == peer && !(least <= x) {
			least = x
		}
	}
	return least
}

// report prints what was measured.
type report struct {
	w    io.Writer
	json bool
}

// libraries are those whose versions are told.
var libraries = map[string]bool{
	"github.com/redis/go-redis/v9": true, "github.com/redis/rueidis": true, "github.com/bsm/redislock": true,
	"github.com/go-redsync/redsync/v4": true, "modernc.org/sqlite": true,
}

func (p report) head(redis string) {
	about := map[string]string{
		"date": time.Now().Format(time.DateOnly), "go": runtime.Version(),
		"system":       fmt.Sprintf("%s/%s, %d CPUs", runtime.GOOS, runtime.GOARCH, runtime.NumCPU()),
		"redis-server": redis, "load average": load(),
	}
	order := []string{"date", "system", "load average", "go", "redis-server"}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if libraries[m.Path] {
				about[m.Path] = m.Version
				order = append(order, m.Path)
			}
		}
	}
	if p.json {
		p.encode(about)
		return
	}
	parts := make([]string, len(order))
	for i, name := range order {
		parts[i] = name + " " + about[name]
	}
	fmt.Fprintf(p.w, "%s.\n", strings.Join(parts, "; "))
}

func (p report) foot() {
	if !p.json {
		fmt.Fprintf(p.w, "\nload average at the end %s.\n", load())
	}
}

// line is one result as JSON.
func (p report) line(r result) {
	if !p.json {
		return
	}
	for name, x := range r.Values {
		if math.IsNaN(x) || math.IsInf(x, 0) {
			delete(r.Values, name) // JSON has no such numbers
		}
	}
	p.encode(r)
}

func (p report) encode(v any) {
	// What cannot be written has nobody who reads it.
	_ = json.NewEncoder(p.w).Encode(v)
}

// table prints the medians of one case.
func (p report) table(title string, rs results, columns ...column) {
	if p.json {
		return
	}
	fmt.Fprintf(p.w, "\n### %s\n\n|", title)
	for _, c := range append([]column{{head: " "}}, columns...) {
		fmt.Fprintf(p.w, " %s |", c.head)
	}
	fmt.Fprintf(p.w, "\n| --- |%s\n", strings.Repeat(" --: |", len(columns)))
	for _, peer := range rs.peers() {
		fmt.Fprintf(p.w, "| %s |", peer)
		for _, c := range columns {
			fmt.Fprintf(p.w, " %s |", short(rs.of(peer, c)))
		}
		fmt.Fprintln(p.w)
	}
}

// short writes a number with three digits that count.
func short(x float64) string {
	switch {
	case math.IsNaN(x):
		return "–"
	case x == math.Trunc(x) && math.Abs(x) < 1e6, math.Abs(x) >= 100:
		return fmt.Sprintf("%.0f", x)
	case math.Abs(x) >= 10:
		return fmt.Sprintf("%.1f", x)
	case math.Abs(x) >= 1:
		return fmt.Sprintf("%.2f", x)
	case math.Abs(x) >= 0.001:
		return fmt.Sprintf("%.3f", x)
	}
	return fmt.Sprintf("%.1g", x)
}

// load is the load average where the system tells it.
func load() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(b))[:1], " ")
}
