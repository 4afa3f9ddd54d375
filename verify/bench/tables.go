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

// Columns that several tables have.
var (
	hung       = column{name: "hung", head: "hung", of: sum}
	violations = column{name: "violations", head: "violations", of: sum}
	requests   = column{name: "requests", head: "requests/pair"}
	serverCPU  = column{name: "server_us", head: "server CPU µs/pair"}
	clientCPU  = column{name: "client_us", head: "client CPU µs/pair"}
	p50        = column{name: "p50_us", head: "p50 µs"}
	p99        = column{name: "p99_us", head: "p99 µs"}
	pairs      = column{name: "pairs_per_s", head: "pairs/s"}
	allocs     = column{name: "allocs", head: "allocs/pair"}
)

// over is the ratio of a column to that of base.
func over(name, head, base string) column {
	return column{name: name, head: "× " + head, base: base}
}

// contention are the columns of a hot key.
func contention(base string) []column {
	return []column{
		{name: "handovers_per_s", head: "hand-overs/s"},
		over("handovers_per_s", base, base),
		{name: "jain", head: "Jain"},
		{name: "p50_ms", head: "p50 wait ms"}, {name: "p99_ms", head: "p99 wait ms"},
		{name: "requests", head: "requests/grant"},
		{name: "server_us", head: "server CPU µs/grant"},
		{name: "client_us", head: "client CPU µs/grant"}, violations,
	}
}

// between are the columns of a key that several processes want.
func between(base string) []column {
	return slices.Insert(contention(base), 2,
		column{name: "crossings_per_s", head: "of these between processes"},
		column{name: "crossing_p50_us", head: "their p50 µs"},
		column{name: "hung", head: "rounds not begun in 15 s", of: sum})
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
	return slices.Concat(redisTables(rs), heldTables(rs), quorumTables(rs), storeTables(rs))
}

func redisTables(rs results) []table {
	return slices.Concat(
		rs.sized("free", "Free lock: one goroutine, one key, processors kept awake", []column{
			p50, over("p50_us", floor, floor),
			{name: "p50_us", head: "best p50 µs", of: least},
			{name: "p50_us", head: "× " + floor, base: floor, of: least},
			p99, requests, serverCPU, clientCPU, allocs, {name: "bytes", head: "bytes/pair"}, hung, violations,
		}),
		rs.sized("keys", "%[1]d goroutines, %[1]d keys", []column{
			pairs, over("pairs_per_s", floor, floor), p50, p99, requests, serverCPU, clientCPU, hung, violations,
		}),
		rs.sized("hot", "Hot key: %d goroutines of one process", contention(fairPeer)),
		rs.sized("stranger", "Hot key: %d goroutines of one process, and one of another every 2 ms", []column{
			{name: "stranger_p50_ms", head: "the other's p50 wait ms"},
			{name: "stranger_p99_ms", head: "p99"}, {name: "stranger_most_ms", head: "longest"},
			{name: "stranger_grants", head: "its grants"},
			{name: "handovers_per_s", head: "hand-overs/s of all"}, violations,
		}),
		rs.sized("processes", "Hot key: 4 processes × 8 goroutines", between(fairPeer)),
		rs.sized("rests", "Hot key: 4 processes × 8 goroutines that pause for 2 ms after each lock, "+
			"processors kept awake", between(fairPeer)),
		rs.sized("line", "Line of %d waiters, each a Client of its own", []column{
			{name: "server_us", head: "server CPU µs/hand-over"},
			{name: "requests", head: "requests/hand-over"},
			{name: "handovers_per_s", head: "hand-overs/s"}, {name: "jain", head: "Jain"},
			{name: "client_us", head: "client CPU µs/hand-over"}, violations,
		}))
}

func heldTables(rs results) []table {
	lost := column{name: "lost", head: "lost", of: sum}
	rate := column{name: "requests_per_s", head: "requests/s"}
	late := column{name: "hung", head: "rounds that hung", of: sum}
	return slices.Concat(
		rs.sized("held", "%d leases held, each renewed every third of it", []column{
			rate, {name: "requests_share", head: "% of the leases renewed/s"},
			{name: "cpu_percent", head: "client CPU %"}, {name: "server_percent", head: "server CPU %"},
			{name: "bytes", head: "bytes/lease"}, {name: "goroutines", head: "goroutines/lease"},
			{name: "taken_per_s", head: "taken/s"}, lost, late,
		}),
		rs.sized("busy", "%d leases held while the process calculates on all processors, for a lease and a third",
			[]column{lost, rate, late}))
}

func quorumTables(rs results) []table {
	return slices.Concat(
		rs.sized("redlock free", "Free lock on a majority of %d servers, processors kept awake", []column{
			p50, over("p50_us", "PINGs", quorumFloor), p99, requests, serverCPU, clientCPU, allocs, hung, violations,
		}),
		rs.sized("redlock keys", "%d goroutines, as many keys, on a majority of 5 servers", []column{
			pairs, p50, p99, requests, clientCPU, hung, violations,
		}),
		rs.sized("redlock hot", "Hot key on a majority of 5 servers: %d goroutines of one process",
			contention("redsync on a quorum")))
}

func storeTables(rs results) (all []table) {
	for _, store := range storeOrder {
		s := stores[store]
		all = slices.Concat(all,
			rs.sized(storePart(store, "free"), store+": free lock", []column{
				p50, over("p50_us", "floor", s.floor), p99, requests, clientCPU, allocs, hung, violations,
			}),
			rs.sized(storePart(store, "keys"), store+": %[1]d goroutines, %[1]d keys", []column{
				pairs, over("pairs_per_s", "floor", s.floor), p50, p99, requests, clientCPU, hung, violations,
			}),
			rs.sized(storePart(store, "hot"), store+": hot key, %d goroutines of one process", contention(s.peer)),
			rs.sized(storePart(store, "processes"), store+": hot key, 4 processes × 8 goroutines", between(s.peer)))
	}
	return all
}

// write prints a table as Markdown, with its title in bold.
func (t table) write(w io.Writer, rs results) {
	rs = rs.part(t.part, t.size)
	fmt.Fprintf(w, "**%s**\n\n| |", t.title)
	var shown []column
	for _, c := range t.columns {
		// What nobody has, or nobody did wrong, needs no column.
		for _, peer := range rs.peers() {
			x := rs.of(peer, c)
			if x == x && (c.of != sum || x != 0 || c.name == "lost" || c.name == "violations") {
				shown = append(shown, c)
				break
			}
		}
	}
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

// printTables prints what a case has measured.
func printTables(w io.Writer, rs results) {
	for _, t := range tables(rs) {
		t.write(w, rs)
	}
}
