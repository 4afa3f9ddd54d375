package bench

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// results are rounds, of one part of a case and one size as a rule.
type results []Result

// part returns the rounds of one part of a case with one size; with size 0, of all.
func (rs results) part(name string, size int) (some results) {
	for _, r := range rs {
		if r.Case == name && (size == 0 || r.Size == size) {
			some = append(some, r)
		}
	}
	return some
}

// sizes are those that were measured, in order.
func (rs results) sizes() (all []int) {
	for _, r := range rs {
		if !slices.Contains(all, r.Size) {
			all = append(all, r.Size)
		}
	}
	slices.Sort(all)
	return all
}

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

// sum is that of all rounds, NaN if it was not measured.
func (rs results) sum(peer, name string) float64 {
	sum := math.NaN()
	for _, r := range rs {
		if x, ok := r.Values[name]; ok && r.Peer == peer {
			if math.IsNaN(sum) {
				sum = 0
			}
			sum += x
		}
	}
	return sum
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
		if slices.ContainsFunc(rs, func(r Result) bool { return r.Peer == p.Name }) {
			names = append(names, p.Name)
		}
	}
	return names
}

// best returns the library that is best at something and is neither ours nor a floor,
// and its value.
func (rs results) best(name string, less bool) (who string, x float64) {
	x = math.NaN()
	for _, peer := range rs.peers() {
		if isOurs(peer) || isFloor(peer) {
			continue
		}
		if y := rs.value(peer, name); !math.IsNaN(y) && (math.IsNaN(x) || (y < x) == less) {
			who, x = peer, y
		}
	}
	return who, x
}

func isOurs(peer string) bool { return strings.HasPrefix(peer, ours) }

// isFloor reports that peer is no lock that one could use.
func isFloor(peer string) bool {
	for _, s := range stores {
		if peer == s.floor {
			return true
		}
	}
	switch peer {
	case floor, floorAuto, floorRueidi, quorumFloor:
		return true
	}
	return false
}

// column is one number of a table: the median over the rounds, or what of says of
// them. With a base it is the ratio to that library.
type column struct {
	name string
	head string
	base string
	of   aggregate
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

// libraries are those whose versions are told.
var libraries = map[string]bool{
	"github.com/redis/go-redis/v9": true, "github.com/redis/rueidis": true, "github.com/bsm/redislock": true,
	"github.com/go-redsync/redsync/v4": true, "modernc.org/sqlite": true, "go.etcd.io/etcd/client/v3": true,
	"github.com/go-zookeeper/zk": true, "github.com/jackc/pgx/v5": true, "github.com/go-sql-driver/mysql": true,
}

// about says what was measured where.
func about() map[string]string {
	about := map[string]string{
		"date": time.Now().Format(time.DateOnly), "go": runtime.Version(),
		"system":       fmt.Sprintf("%s/%s, %d CPUs", runtime.GOOS, runtime.GOARCH, runtime.NumCPU()),
		"load average": load(),
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if libraries[m.Path] {
				about[m.Path] = m.Version
			}
		}
		about[onEtcd] = about["go.etcd.io/etcd/client/v3"]
	}
	return about
}

// short writes a number with three digits that count.
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

// load is the load average where the system tells it.
func load() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(b))[:1], " ")
}
