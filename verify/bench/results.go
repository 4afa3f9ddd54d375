package bench

import (
	"fmt"
	"maps"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// Report is what a run has measured.
type Report struct {
	About   map[string]string `json:"about"`
	Results []Result          `json:"results"`
}

// libraries are those whose versions are reported.
var libraries = []string{
	"github.com/bsm/redislock", "github.com/go-redsync/redsync/v4", "github.com/go-sql-driver/mysql",
	"github.com/go-zookeeper/zk", "github.com/jackc/pgx/v5", "github.com/redis/go-redis/v9",
	"github.com/redis/rueidis", "go.etcd.io/etcd/client/v3", "modernc.org/sqlite",
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
			if slices.Contains(libraries, m.Path) {
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

// describe says when and where the run was, and of which versions.
func (r *Report) describe() string {
	all := []string{r.About["date"], r.About["system"], r.About["go"],
		"load average before and after " + r.About["load average"] + ", " + r.About["load average at the end"]}
	for _, name := range append([]string{onRedis}, libraries...) {
		if version := r.About[name]; version != "" {
			all = append(all, name+" "+version)
		}
	}
	return strings.Join(all, "; ") + ".\n"
}

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
	return median(slices.Collect(maps.Values(rs.values(peer, name))))
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
	for _, p := range Peers() {
		x := rs.value(p.Name, name)
		if p.Floor || isOurs(p.Name) || math.IsNaN(x) {
			continue
		}
		if math.IsNaN(best) || (x < best) == lowest {
			who, best = p.Name, x
		}
	}
	return who
}

// jain is Jain's fairness index of what each got: 1 if all got the same, 1/n if
// one got everything. Of nothing at all it is 0.
func jain(got []int64) float64 {
	var sum, squares float64
	for _, x := range got {
		sum += float64(x)
		squares += float64(x) * float64(x)
	}
	if squares == 0 {
		return 0
	}
	return sum * sum / (float64(len(got)) * squares)
}

// percentile returns the smallest of the sorted values that p percent of them do
// not exceed. Of no values it is NaN.
func percentile(sorted []time.Duration, p float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	rank := int(math.Ceil(p / 100 * float64(len(sorted))))
	return float64(sorted[min(max(rank, 1), len(sorted))-1])
}

// median returns the middle of xs, or the mean of the two in the middle; of nothing NaN.
func median(xs []float64) float64 {
	if len(xs) == 0 {
		return math.NaN()
	}
	xs = slices.Sorted(slices.Values(xs))
	return (xs[(len(xs)-1)/2] + xs[len(xs)/2]) / 2
}
