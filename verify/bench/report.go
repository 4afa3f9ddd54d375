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

// results are rounds, as a rule of one part of a case and one size.
type results []Result

// part returns the rounds of one part of a case with one size; with size 0, of all.
func (rs results) part(name string, size int) (some results) {
	for _, r := range rs {
		if r.Part == name && (size == 0 || r.Size == size) {
			some = append(some, r)
		}
	}
	return some
}

// sizes are those that were measured, in order.
func (rs results) sizes() (all []int) {
	for _, r := range rs {
		all = append(all, r.Size)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// values are a peer's values of one name, by round.
func (rs results) values(peer, name string) map[int]float64 {
	byRound := map[int]float64{}
	for _, r := range rs {
		if x, ok := r.Values[name]; ok && r.Peer == peer {
			byRound[r.Round] = x
		}
	}
	return byRound
}

// value is the median over the rounds, NaN if it was not measured.
func (rs results) value(peer, name string) float64 {
	var xs []float64
	for _, x := range rs.values(peer, name) {
		xs = append(xs, x)
	}
	return median(xs)
}

// sum is the sum over the rounds, NaN if it was not measured.
func (rs results) sum(peer, name string) float64 {
	all := rs.values(peer, name)
	if len(all) == 0 {
		return math.NaN()
	}
	var sum float64
	for _, x := range all {
		sum += x
	}
	return sum
}

// ratio is the median of the ratios within each round.
func (rs results) ratio(peer, base, name string) float64 {
	below := rs.values(base, name)
	var xs []float64
	for round, x := range rs.values(peer, name) {
		if y := below[round]; y != 0 {
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

// best returns the library that has the lowest or the highest value of a name, and is
// neither fencelock nor a floor.
func (rs results) best(name string, lowest bool) (who string) {
	best := math.NaN()
	for _, peer := range rs.peers() {
		x := rs.value(peer, name)
		if isOurs(peer) || isFloor(peer) || math.IsNaN(x) {
			continue
		}
		if math.IsNaN(best) || (x < best) == lowest {
			who, best = peer, x
		}
	}
	return who
}

// isFloor reports whether peer is no lock that one could use.
func isFloor(peer string) bool {
	for _, s := range stores {
		if peer == s.floor {
			return true
		}
	}
	return slices.Contains([]string{floor, floorAuto, floorRueidis, quorumFloor}, peer)
}

// libraries are those whose versions are reported.
var libraries = map[string]bool{
	"github.com/redis/go-redis/v9": true, "github.com/redis/rueidis": true, "github.com/bsm/redislock": true,
	"github.com/go-redsync/redsync/v4": true, "modernc.org/sqlite": true, "go.etcd.io/etcd/client/v3": true,
	"github.com/go-zookeeper/zk": true, "github.com/jackc/pgx/v5": true, "github.com/go-sql-driver/mysql": true,
}

// about describes the machine and the versions of the libraries.
func about() map[string]string {
	about := map[string]string{
		"date": time.Now().Format(time.DateOnly), "go": runtime.Version(),
		"system":       fmt.Sprintf("%s/%s, %d CPUs", runtime.GOOS, runtime.GOARCH, runtime.NumCPU()),
		"load average": load1(),
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if libraries[m.Path] {
				about[m.Path] = m.Version
			}
		}
	}
	return about
}

// load1 is the load average of a minute, where the system has one.
func load1() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	one, _, _ := strings.Cut(string(b), " ")
	return one
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
