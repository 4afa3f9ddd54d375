package bench

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// table is one part of a case with one size.
type table struct {
	part    string
	size    int
	title   string
	columns []column
}

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
	hung       = column{name: "hung", head: "hung", sum: true}
	violations = column{name: "violations", head: "violations", sum: true}
	requests   = column{name: "requests", head: "requests/pair"}
	serverCPU  = column{name: "server_us", head: "server CPU µs/pair"}
	clientCPU  = column{name: "client_us", head: "client CPU µs/pair"}
	p50        = column{name: "p50_us", head: "p50 µs"}
	p99        = column{name: "p99_us", head: "p99 µs"}
	pairs      = column{name: "pairs_per_s", head: "pairs/s"}
	allocs     = column{name: "allocs", head: "allocs/pair"}
	handovers  = column{name: "handovers_per_s", head: "hand-overs/s"}
	fairness   = column{name: "jain", head: "Jain"}
)

// over is the ratio of a column to that of base.
func over(name, head, base string) column {
	return column{name: name, head: "× " + head, base: base}
}

// inMs is a column whose values are µs, printed as ms.
func inMs(name, head string) column { return column{name: name, head: head, scale: 1e-3} }

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
		column{name: "crossing_p50_us", head: "their p50 µs"},
		column{name: "hung", head: "rounds not begun in 15 s", sum: true})
}

// sized makes a table of each size that was measured.
func (rs results) sized(part, title string, columns []column) (all []table) {
	for _, size := range rs.part(part, 0).sizes() {
		t := table{part, size, title, columns}
		if strings.Contains(title, "%") {
			t.title = fmt.Sprintf(title, size)
		}
		all = append(all, t)
	}
	return all
}

// tables are all there are, in order. What was not measured has no rows.
func tables(rs results) []table {
	free := []column{p50, over("p50_us", floor, floor), p99, requests, serverCPU, clientCPU, allocs,
		{name: "bytes", head: "bytes/pair"}, hung, violations}
	keys := []column{pairs, over("pairs_per_s", floor, floor), p50, p99, requests, serverCPU, clientCPU,
		hung, violations}
	onQuorum := func(columns []column) []column {
		return slices.DeleteFunc(slices.Clone(columns), func(c column) bool { return c.base != "" })
	}
	all := slices.Concat(
		rs.sized("free", "Free lock: one goroutine, one key, processors kept awake", free),
		rs.sized("keys", "%[1]d goroutines, %[1]d keys", keys),
		rs.sized("hot", "Hot key: %d goroutines of one process", contended(fairPeer)),
		rs.sized("stranger", "Hot key: %d goroutines of one process, and one of another every 2 ms", []column{
			inMs("stranger_p50_us", "the other's p50 wait ms"), inMs("stranger_p99_us", "p99"),
			{name: "stranger_grants", head: "its grants"}, handovers, violations,
		}),
		rs.sized("processes", "Hot key: 4 processes × 8 goroutines", between(fairPeer)),
		rs.sized("line", "Line of %d waiters, each a Client of its own", []column{
			{name: "server_us", head: "server CPU µs/hand-over"}, {name: "requests", head: "requests/hand-over"},
			handovers, fairness, {name: "client_us", head: "client CPU µs/hand-over"}, violations,
		}),
		rs.sized("held", "%d leases held, each renewed every third of it", []column{
			{name: "requests_per_s", head: "requests/s"},
			{name: "requests_share", head: "% of the leases renewed/s"},
			{name: "cpu_percent", head: "client CPU %"}, {name: "server_percent", head: "server CPU %"},
			{name: "bytes", head: "bytes/lease"}, {name: "goroutines", head: "goroutines/lease"},
			{name: "acquired_per_s", head: "acquired/s"}, {name: "lost", head: "lost", sum: true},
			{name: "hung", head: "rounds that hung", sum: true},
		}),
		rs.sized("redlock free", "Free lock on a majority of five servers, processors kept awake",
			slices.Insert(onQuorum(free), 1, over("p50_us", "PINGs", quorumFloor))),
		rs.sized("redlock keys", "%d goroutines, as many keys, on a majority of five servers", onQuorum(keys)),
		rs.sized("redlock hot", "Hot key on a majority of five servers: %d goroutines of one process",
			contended("redsync on a quorum")))
	for _, store := range storeOrder {
		s := stores[store]
		all = slices.Concat(all,
			rs.sized(storePart(store, "free"), store+": free lock",
				[]column{p50, over("p50_us", "floor", s.floor), p99, clientCPU, allocs, hung, violations}),
			rs.sized(storePart(store, "keys"), store+": %[1]d goroutines, %[1]d keys",
				[]column{pairs, over("pairs_per_s", "floor", s.floor), p50, p99, clientCPU, hung, violations}),
			rs.sized(storePart(store, "hot"), store+": hot key, %d goroutines of one process", contended(s.peer)),
			rs.sized(storePart(store, "processes"), store+": hot key, 4 processes × 8 goroutines", between(s.peer)))
	}
	return all
}

// of is one number of a table.
func (rs results) of(peer string, c column) (x float64) {
	switch {
	case c.sum:
		x = rs.sum(peer, c.name)
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

// write prints a table as Markdown, with its title in bold.
func (t table) write(w io.Writer, rs results) {
	rs = rs.part(t.part, t.size)
	fmt.Fprintf(w, "**%s**\n\n| |", t.title)
	// A column without a value, or a sum that is 0, is left out.
	shown := slices.DeleteFunc(slices.Clone(t.columns), func(c column) bool {
		return !slices.ContainsFunc(rs.peers(), func(peer string) bool {
			x := rs.of(peer, c)
			return x == x && (!c.sum || x != 0 || c.name == "lost" || c.name == "violations")
		})
	})
	for _, c := range shown {
		fmt.Fprintf(w, " %s |", c.head)
	}
	fmt.Fprintf(w, "\n| --- |%s\n", strings.Repeat(" --: |", len(shown)))
	for _, peer := range rs.peers() {
		fmt.Fprintf(w, "| %s |", peer)
		for _, c := range shown {
			fmt.Fprintf(w, " %s |", short(rs.of(peer, c)))
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintln(w)
}

func printTables(w io.Writer, rs results) {
	for _, t := range tables(rs) {
		t.write(w, rs)
	}
}
