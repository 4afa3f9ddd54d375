package bench

import (
	"fmt"
	"io"
	"math"
)

// target is one figure that the project wants to reach.
type target struct {
	what       string
	part       string
	size       int // 0: all
	peer, name string
	base       string // the value is the ratio to this library, or to the best peer
	bound      bound
	wanted     float64
}

// bound says on which side of wanted the value must be.
type bound string

const (
	atMost  bound = "≤"
	atLeast bound = "≥"
)

// bestPeer stands for the library that is best at the value, neither fencelock nor a floor.
const bestPeer = "the best peer"

// targets are judged by one run alone.
func targets() []target {
	all := []target{
		{"free lock on Redis: requests", "free", 1, ours, "requests", "", atMost, 2.01},
		{"free lock on Redis: p50", "free", 1, ours, "p50_us", floor, atMost, 1.15},
		{"free lock: allocations", "free", 1, ours, "allocs", bestPeer, atMost, 1},
		{"free lock in memory: p50 µs", "free", 1, oursMemory, "p50_us", "", atMost, 1.5},
		{"free lock in memory: allocations", "free", 1, oursMemory, "allocs", "", atMost, 6.05},
		{"512 keys: pairs/s", "keys", 512, ours, "pairs_per_s", floor, atLeast, 3},
		{"512 keys: pairs/s", "keys", 512, ours, "pairs_per_s", bestPeer, atLeast, 1.8},
		{"a PING beside 512 keys: p99", "keys pings", 512, ours, "ping_p99_us", floor, atMost, 1.5},
		{"another process beside 64 goroutines: p99 wait", "stranger", 0, ours, "stranger_p99_ms", strict, atMost, 1},
		{"4 processes × 8: hand-overs/s", "processes", 0, ours, "handovers_per_s", fairPeer, atLeast, 3},
		{"4 processes × 8: Jain", "processes", 0, ours, "jain", "", atLeast, 0.95},
		{"4 processes × 8, HandOff 1: hand-overs/s", "processes", 0, strict, "handovers_per_s", fairPeer, atLeast, 1},
		{"4 processes × 8: p50 between processes", "processes", 0, ours, "crossing_p50_us", bestPeer, atMost, 1},
		{"4 processes × 8, HandOff 1: the same", "processes", 0, strict, "crossing_p50_us", bestPeer, atMost, 1},
		{"10 000 leases: client CPU", "held", 10000, ours, "cpu_percent", readme, atMost, 1.0 / 3},
		{"100 000 leases: client CPU", "held", 100000, ours, "cpu_percent", readme, atMost, 1.0 / 3},
		{"100 000 leases: requests/s, % of the leases", "held", 100000, ours, "requests_share", "", atMost, 1},
		{"100 000 leases: bytes each", "held", 100000, ours, "lease_bytes", "", atMost, 600},
		{"100 000 leases: goroutines each", "held", 100000, ours, "lease_goroutines", "", atMost, 0.001},
		{"service: free lock, p50", "service free", 1, served, "p50_us", ours, atMost, 3.5},
		{"service: hand-over between two instances, p50", "service hand-over", 0, servedWait, "crossing_p50_us", ours,
			atMost, 3},
		{"service: 5000 waiting clients: kB of memory each", "service waiting", 0, served, "waiter_kb", "", atMost, 40},
		{"service: the same, if they come one by one", "service slowly", 0, served, "waiter_kb", "", atMost, 40},
		{"Redlock, five servers: p50", "redlock free", 0, "fencelock on a quorum", "p50_us", quorumFloor, atMost, 1.3},
	}
	for _, size := range []int{8, 64, 512} {
		hot := fmt.Sprintf("hot key, %d goroutines: ", size)
		all = append(all,
			target{hot + "hand-overs/s", "hot", size, ours, "handovers_per_s", fairPeer, atLeast, 50},
			target{hot + "Jain", "hot", size, ours, "jain", "", atLeast, 0.98},
			target{hot + "p99 wait", "hot", size, ours, "p99_us", fairPeer, atMost, 0.01},
			target{hot + "requests/grant", "hot", size, ours, "requests", "", atMost, 0.1})
	}
	for _, s := range stores {
		floorRatio := 1.11
		if s.store == onZooKeeper {
			floorRatio = 1.25 // its client encodes by reflection and has no contexts
		}
		free, hot, processes := s.store+" free", s.store+" hot", s.store+" processes"
		all = append(all,
			target{s.store + ": free lock, p50", free, 1, s.ours, "p50_us", s.floor, atMost, floorRatio},
			target{s.store + ": hot key, hand-overs/s", hot, 64, s.ours, "handovers_per_s", s.peer, atLeast, 1},
			target{s.store + ": 4 processes × 8, hand-overs/s", processes, 0, s.ours, "handovers_per_s", s.peer,
				atLeast, 1})
	}
	return all
}

// measured returns what a run has measured for the target, NaN if nothing, and the library
// that the value is a ratio to.
func (t target) measured(rs results) (value float64, base string) {
	rs = rs.part(t.part, t.size)
	switch t.base {
	case "":
		return rs.value(t.peer, t.name), ""
	case bestPeer:
		base = rs.best(t.name, t.bound == atMost)
		return rs.value(t.peer, t.name) / rs.value(base, t.name), base
	}
	return rs.ratio(t.peer, t.base, t.name), t.base
}

// printTargets prints which targets the run has reached.
func (r *Report) printTargets(w io.Writer) {
	fmt.Fprint(w, "| what | wanted | measured | reached |\n| --- | --: | --: | --- |\n")
	for _, t := range targets() {
		value, base := t.measured(r.Results)
		if math.IsNaN(value) {
			continue
		}
		reached := "yes"
		if t.bound == atMost && value > t.wanted || t.bound == atLeast && value < t.wanted {
			reached = "**no**"
		}
		what, unit := t.what, ""
		if base != "" {
			what, unit = what+", × "+base, " ×"
		}
		fmt.Fprintf(w, "| %s | %s %s%s | %s%s | %s |\n",
			what, t.bound, short(t.wanted), unit, short(value), unit, reached)
	}
}
