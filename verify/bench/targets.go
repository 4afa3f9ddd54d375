package bench

import (
	"fmt"
	"io"
	"math"
)

// target is one figure that the project wants to reach, and what this run measured.
type target struct {
	group  string
	what   string
	value  float64
	bound  bound
	wanted float64
	unit   string
	slack  float64 // what the edges of a window may add to a count
	beside string  // a figure shown beside the value
}

// bound says on which side of wanted the value must be.
type bound string

const (
	atMost  bound = "≤"
	below   bound = "<"
	atLeast bound = "≥"
	above   bound = ">"
)

func (t target) known() bool { return !math.IsNaN(t.value) && !math.IsNaN(t.wanted) }

func (t target) holds() bool {
	switch t.bound {
	case below:
		return t.value < t.wanted
	case above:
		return t.value > t.wanted
	case atMost:
		return t.value <= t.wanted+t.slack
	}
	return t.value >= t.wanted
}

// targets are what the project wants to reach. Each is judged by this run alone.
func targets(rs results) []target {
	all := freeTargets(rs)
	all = append(all, keysTargets(rs)...)
	all = append(all, hotTargets(rs)...)
	all = append(all, processesTargets(rs)...)
	all = append(all, heldTargets(rs)...)
	all = append(all, lineTargets(rs)...)
	return append(all, storeTargets(rs)...)
}

func freeTargets(rs results) []target {
	free := rs.part("free", 1)
	who, allocs := free.best("allocs", true)
	all := []target{
		{what: "free lock on Redis: requests",
			value: free.value(ours, "requests"), bound: atMost, wanted: 2, slack: 0.01},
		{what: "free lock on Redis: p50, × raw SET NX and compare-and-delete",
			value: free.ratio(ours, floor, "p50_us"), bound: atMost, wanted: 1.15, unit: "×"},
		{what: "free lock: allocations, against the peer with fewest (" + who + ")",
			value: free.value(ours, "allocs"), bound: below, wanted: math.Round(allocs)},
		{what: "the core on memlock: µs a pair",
			value: free.value(oursMemory, "p50_us"), bound: below, wanted: 1.5, unit: "µs"},
		{what: "the core on memlock: allocations a pair",
			value: free.value(oursMemory, "allocs"), bound: atMost, wanted: 6, slack: 0.05},
	}
	return grouped("1", all)
}

func keysTargets(rs results) []target {
	keys := rs.part("keys", 512)
	who, _ := keys.best("pairs_per_s", false)
	return grouped("2", []target{
		{what: "512 keys: pairs/s, × raw go-redis",
			value: keys.ratio(ours, floor, "pairs_per_s"), bound: atLeast, wanted: 3, unit: "×"},
		{what: "512 keys: pairs/s, × the best peer (" + who + ")",
			value: keys.ratio(ours, who, "pairs_per_s"), bound: atLeast, wanted: 1.8, unit: "×"},
	})
}

func hotTargets(rs results) (all []target) {
	for _, size := range []int{8, 64, 512} {
		hot := rs.part("hot", size)
		what := fmt.Sprintf("hot key, %d goroutines: ", size)
		all = append(all,
			target{what: what + "hand-offs/s, × rueidislock",
				value: hot.ratio(ours, fairPeer, "handovers_per_s"), bound: atLeast, wanted: 50, unit: "×"},
			target{what: what + "Jain",
				value: hot.value(ours, "jain"), bound: atLeast, wanted: 0.98},
			target{what: what + "p99 wait, × rueidislock's",
				value: hot.ratio(ours, fairPeer, "p99_ms"), bound: below, wanted: 0.01, unit: "×"},
			target{what: what + "server requests for each acquisition",
				value: hot.value(ours, "requests"), bound: atMost, wanted: 0.1})
	}
	stranger := rs.part("stranger", 0)
	return grouped("3", append(all, target{
		what:  "another process beside 64 goroutines: its p99 wait, × that with HandOff 1",
		value: stranger.ratio(ours, strict, "stranger_p99_ms"), bound: atMost, wanted: 1, unit: "×",
		beside: short(stranger.value(ours, "stranger_p99_ms")) + " ms; rueidislock " +
			short(stranger.value(fairPeer, "stranger_p99_ms")) + " ms",
	}))
}

func processesTargets(rs results) []target {
	processes := rs.part("processes", 0)
	all := []target{
		{what: "4 processes × 8: hand-overs/s, × rueidislock",
			value: processes.ratio(ours, fairPeer, "handovers_per_s"), bound: atLeast, wanted: 3, unit: "×"},
		{what: "4 processes × 8: Jain",
			value: processes.value(ours, "jain"), bound: atLeast, wanted: 0.95},
		{what: "4 processes × 8, HandOff 1: hand-overs/s, × rueidislock",
			value: processes.ratio(strict, fairPeer, "handovers_per_s"), bound: above, wanted: 1, unit: "×"},
	}
	for _, x := range []struct {
		part, library, what string
	}{
		{"processes", ours, "4 processes × 8"},
		{"processes", strict, "4 processes × 8, HandOff 1"},
		{"rests", strict, "4 processes × 8 that pause between two locks, HandOff 1"},
	} {
		r := rs.part(x.part, 0)
		who, best := r.best("crossing_p50_us", true)
		all = append(all, target{
			what:  x.what + ": hand-over between processes, p50, against the best peer (" + who + ")",
			value: r.value(x.library, "crossing_p50_us"), bound: below, wanted: best, unit: "µs",
		})
	}
	return grouped("4", all)
}

func heldTargets(rs results) []target {
	held, busy := rs.part("held", 100000), rs.part("busy", 0)
	return grouped("5", []target{
		{what: "100 000 leases: renewal requests/s, % of the leases renewed/s",
			value: held.value(ours, "requests_share"), bound: atMost, wanted: 1, unit: "%"},
		{what: "10 000 leases: client CPU, × rueidislock's",
			value: rs.part("held", 10000).ratio(ours, readme, "cpu_percent"), bound: below, wanted: 1.0 / 3, unit: "×"},
		{what: "100 000 leases: client CPU, × rueidislock's",
			value: held.ratio(ours, readme, "cpu_percent"), bound: below, wanted: 1.0 / 3, unit: "×"},
		{what: "100 000 leases: bytes each",
			value: held.value(ours, "bytes"), bound: below, wanted: 600},
		{what: "100 000 leases: goroutines each",
			value: held.value(ours, "goroutines"), bound: atMost, wanted: 0, slack: 0.001},
		{what: "100 000 leases, all processors busy: lost",
			value: busy.sum(ours, "lost"), bound: atMost, wanted: 0,
			beside: "rueidislock: " + short(busy.sum(readme, "lost"))},
	})
}

func lineTargets(rs results) []target {
	sizes := rs.part("line", 0).sizes()
	if len(sizes) < 2 {
		return nil
	}
	few, many := sizes[0], sizes[len(sizes)-1]
	return grouped("6", []target{{
		what: fmt.Sprintf("line of %d Clients: server time a hand-over, × that of %d", many, few),
		value: rs.part("line", many).value(ours, "server_us") /
			rs.part("line", few).value(ours, "server_us"),
		bound: atMost, wanted: 2, unit: "×",
	}})
}

func storeTargets(rs results) (all []target) {
	for _, store := range storeOrder {
		s := stores[store]
		free := rs.part(storePart(store, "free"), 0)
		wanted := 0.9
		if store == onZooKeeper {
			wanted = 0.8 // its client encodes by reflection and has no contexts
		}
		all = append(all, target{
			what:  store + ": free locks/s, × the floor (" + s.floor + ")",
			value: 1 / free.ratio(s.ours, s.floor, "p50_us"), bound: atLeast, wanted: wanted, unit: "×",
		})
		for _, part := range []struct{ name, what string }{
			{"hot", "64 goroutines on one key"}, {"processes", "4 processes × 8 on one key"},
		} {
			r := rs.part(storePart(store, part.name), 0)
			all = append(all, target{
				what:  store + ", " + part.what + ": hand-overs/s, × " + s.peer,
				value: r.ratio(s.ours, s.peer, "handovers_per_s"), bound: above, wanted: 1, unit: "×",
			})
		}
	}
	quorum := rs.part("redlock free", 5)
	return grouped("7", append(all, target{
		what:  "Redlock over five servers: p50, × two PINGs of a majority",
		value: quorum.ratio("fencelock on a quorum", quorumFloor, "p50_us"), bound: atMost, wanted: 1.3, unit: "×",
		beside: "redsync: " + short(quorum.ratio("redsync on a quorum", quorumFloor, "p50_us")) + " ×",
	}))
}

func grouped(group string, all []target) []target {
	for i := range all {
		all[i].group = group
	}
	return all
}

// PrintTargets prints what holds and what does not.
func (m *Measured) PrintTargets(w io.Writer) { printTargets(w, m.Results) }

func printTargets(w io.Writer, rs results) {
	fmt.Fprint(w, "| | what | wanted | measured | ÷ wanted | holds |\n| --- | --- | --: | --: | --: | --- |\n")
	for _, t := range targets(rs) {
		if !t.known() {
			continue
		}
		unit := t.unit
		if unit != "" {
			unit = " " + unit
		}
		holds := "yes"
		if !t.holds() {
			holds = "**no**"
		}
		measured := short(t.value) + unit
		if t.beside != "" {
			measured += " (" + t.beside + ")"
		}
		fmt.Fprintf(w, "| %s | %s | %s %s%s | %s | %s | %s |\n", t.group, t.what, t.bound, short(t.wanted), unit,
			measured, quotient(t.value, t.wanted), holds)
	}
}

// quotient is x/y, if there is one.
func quotient(x, y float64) string {
	if y == 0 {
		return "–"
	}
	return short(x / y)
}
