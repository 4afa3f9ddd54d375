package bench

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// language of what is printed.
type language int

const (
	english language = iota
	chinese
)

// pick returns the text in language l.
func (l language) pick(en, zh string) string {
	if l == chinese {
		return zh
	}
	return en
}

// table is one part of a case with one size.
type table struct {
	part      string
	size      int
	title, zh string
	columns   []column
}

// tables are all there are, in order. What was not measured has no rows.
func tables(rs results) []table {
	var all []table
	add := func(part string, title, zh string, columns []column) {
		sizes := rs.part(part, 0).sizes()
		for _, size := range sizes {
			t := table{part, size, title, zh, columns}
			if strings.Contains(title, "%") {
				t.title, t.zh = fmt.Sprintf(title, size), fmt.Sprintf(zh, size)
			}
			all = append(all, t)
		}
	}
	hung := column{name: "hung", head: "hung", zh: "卡住", of: sum}
	violations := column{name: "violations", head: "violations", zh: "违反", of: sum}
	requests := column{name: "requests", head: "requests/pair", zh: "请求/次"}
	server := column{name: "server_us", head: "server CPU µs/pair", zh: "服务器 CPU µs/次"}
	client := column{name: "client_us", head: "client CPU µs/pair", zh: "客户端 CPU µs/次"}
	p50 := column{name: "p50_us", head: "p50 µs", zh: "p50 µs"}
	p99 := column{name: "p99_us", head: "p99 µs", zh: "p99 µs"}
	pairs := column{name: "pairs_per_s", head: "pairs/s", zh: "次/s"}
	allocs := column{name: "allocs", head: "allocs/pair", zh: "分配/次"}
	over := func(name, head, zh, base string) column {
		return column{name: name, head: "× " + head, zh: "× " + zh, base: base}
	}

	add("free", "Free lock: one goroutine, one key, processors kept awake", "空闲的锁：一个 goroutine，一个键，处理器保持唤醒", []column{
		p50, over("p50_us", floor, floor, floor),
		{name: "p50_us", head: "best p50 µs", zh: "最好的 p50 µs", of: least},
		{name: "p50_us", head: "× " + floor, zh: "× " + floor, base: floor, of: least},
		p99, requests, server, client, allocs, {name: "bytes", head: "bytes/pair", zh: "字节/次"}, hung, violations,
	})
	add("keys", "%[1]d goroutines, %[1]d keys", "%[1]d 个 goroutine，%[1]d 个键", []column{
		pairs, over("pairs_per_s", floor, floor, floor), p50, p99, requests, server, client, hung, violations,
	})
	contention := func(base string) []column {
		all := []column{{name: "handovers_per_s", head: "hand-overs/s", zh: "移交/s"}}
		if base != "" {
			all = append(all, over("handovers_per_s", base, base, base))
		}
		return append(all,
			column{name: "jain", head: "Jain", zh: "Jain"},
			column{name: "p50_ms", head: "p50 wait ms", zh: "p50 等待 ms"}, column{name: "p99_ms", head: "p99 wait ms", zh: "p99 等待 ms"},
			column{name: "requests", head: "requests/grant", zh: "请求/授予"},
			column{name: "server_us", head: "server CPU µs/grant", zh: "服务器 CPU µs/授予"},
			column{name: "client_us", head: "client CPU µs/grant", zh: "客户端 CPU µs/授予"}, violations)
	}
	between := func(base string) []column {
		return slices.Insert(contention(base), 2,
			column{name: "crossings_per_s", head: "of these between processes", zh: "其中跨进程"},
			column{name: "crossing_p50_us", head: "their p50 µs", zh: "跨进程 p50 µs"},
			column{name: "hung", head: "rounds not begun in 15 s", zh: "15 秒内没开始的轮数", of: sum})
	}
	add("hot", "Hot key: %d goroutines of one process", "热键：一个进程的 %d 个 goroutine", contention(fairPeer))
	add("stranger", "Hot key: %d goroutines of one process, and one of another that comes every 2 ms", "热键：一个进程的 %d 个 goroutine，另一进程的一个每 2 毫秒来一次", []column{
		{name: "stranger_p50_ms", head: "the other's p50 wait ms", zh: "另一进程 p50 等待 ms"},
		{name: "stranger_p99_ms", head: "p99", zh: "p99"}, {name: "stranger_most_ms", head: "longest", zh: "最长"},
		{name: "stranger_grants", head: "its grants", zh: "它的授予"},
		{name: "handovers_per_s", head: "hand-overs/s of all", zh: "总移交/s"}, violations,
	})
	add("processes", "Hot key: 4 processes × 8 goroutines", "热键：4 个进程 × 8 个 goroutine", between(fairPeer))
	add("rests", "Hot key: 4 processes × 8 goroutines that rest for 2 ms after each lock, processors kept awake", "热键：4 个进程 × 8 个 goroutine，每次锁后休息 2 毫秒，处理器保持唤醒", between(fairPeer))
	add("line", "Line of %d waiters, each a Client of its own", "%d 个等待者的队列，每个是一个独立的 Client", []column{
		{name: "server_us", head: "server CPU µs/hand-over", zh: "服务器 CPU µs/移交"},
		{name: "requests", head: "requests/hand-over", zh: "请求/移交"},
		{name: "handovers_per_s", head: "hand-overs/s", zh: "移交/s"}, {name: "jain", head: "Jain", zh: "Jain"},
		{name: "client_us", head: "client CPU µs/hand-over", zh: "客户端 CPU µs/移交"}, violations,
	})
	held := []column{
		{name: "requests_per_s", head: "requests/s", zh: "请求/s"},
		{name: "requests_share", head: "% of the leases renewed/s", zh: "占每秒续约租约的 %"},
		{name: "cpu_percent", head: "client CPU %", zh: "客户端 CPU %"}, {name: "server_percent", head: "server CPU %", zh: "服务器 CPU %"},
		{name: "bytes", head: "bytes/lease", zh: "字节/租约"}, {name: "goroutines", head: "goroutines/lease", zh: "goroutine/租约"},
		{name: "taken_per_s", head: "taken/s", zh: "获取/s"}, {name: "lost", head: "lost", zh: "丢失", of: sum},
		{name: "hung", head: "rounds that hung", zh: "卡住的轮数", of: sum},
	}
	add("held", "%d leases held, each renewed every third of it", "持有 %d 个租约，每过三分之一续约一次", held)
	add("busy", "%d leases held while the process calculates on all processors, for a lease and a third", "持有 %d 个租约，同时该进程在所有处理器上计算，持续一又三分之一个租约", []column{
		{name: "lost", head: "lost", zh: "丢失", of: sum}, {name: "requests_per_s", head: "requests/s", zh: "请求/s"},
		{name: "hung", head: "rounds that hung", zh: "卡住的轮数", of: sum},
	})
	add("redlock free", "Free lock on a majority of %d servers, processors kept awake", "%d 台服务器的多数：空闲的锁，处理器保持唤醒", []column{
		p50, over("p50_us", "PINGs", "PING", quorumFloor), p99, requests, server, client, allocs, hung, violations,
	})
	add("redlock keys", "%d goroutines, as many keys, on a majority of 5 servers", "%d 个 goroutine，同样多的键，5 台服务器的多数", []column{
		pairs, p50, p99, requests, client, hung, violations,
	})
	add("redlock hot", "Hot key on a majority of 5 servers: %d goroutines of one process", "5 台服务器的多数上的热键：一个进程的 %d 个 goroutine", contention("redsync on a quorum"))
	for _, store := range storeOrder {
		s := stores[store]
		add(storePart(store, "free"), store+": free lock", store+"：空闲的锁", []column{
			p50, over("p50_us", "floor", "下限", s.floor), p99, requests, client, allocs, hung, violations,
		})
		add(storePart(store, "keys"), store+": %[1]d goroutines, %[1]d keys", store+"：%[1]d 个 goroutine，%[1]d 个键", []column{
			pairs, over("pairs_per_s", "floor", "下限", s.floor), p50, p99, requests, client, hung, violations,
		})
		add(storePart(store, "hot"), store+": hot key, %d goroutines of one process", store+"：热键，一个进程的 %d 个 goroutine", contention(s.peer))
		add(storePart(store, "processes"), store+": hot key, 4 processes × 8 goroutines", store+"：热键，4 个进程 × 8 个 goroutine", between(s.peer))
	}
	add("profile", "", "", nil)
	return slices.DeleteFunc(all, func(t table) bool { return t.columns == nil })
}

// write prints a table as Markdown, with its title in bold.
func (t table) write(w io.Writer, rs results, l language) {
	rs = rs.part(t.part, t.size)
	fmt.Fprintf(w, "**%s**\n\n| |", l.pick(t.title, t.zh))
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
		fmt.Fprintf(w, " %s |", l.pick(c.head, c.zh))
	}
	fmt.Fprintf(w, "\n| --- |%s\n", strings.Repeat(" --: |", len(shown)))
	for _, peer := range rs.peers() {
		fmt.Fprintf(w, "| %s |", l.pick(peer, inChinese(peer)))
		for _, c := range shown {
			fmt.Fprintf(w, " %s |", short(rs.of(peer, c)))
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintln(w)
}

// inChinese is the name of a library or a floor as Chinese readers see it.
func inChinese(peer string) string {
	for _, x := range [][2]string{
		{quorumLeast, "多数的两个最小脚本"}, {storeLimits[onEtcd], "比较并按租约写入，比较并删除"}, {storeLimits[onZooKeeper], "带栅栏的 create，delete"},
		{"one row, two statements", "一行，两条语句"}, {"one row, two procedures", "一行，两个存储过程"},
		{lineLeast, "排队的两个最小脚本"}, {bare, "两个最小脚本"}, {queueOnly, "内存中的队列"}, {", Redis beside it", "，同时问 Redis"},
		{", autopipelined", "，自动流水线"}, {"raw ", "直接用 "}, {", memory", "，内存"}, {", HandOff 1", "，HandOff 1"},
		{", 1 key", "，单键"}, {", README", "，README 的设置"}, {", SQLite", "，SQLite"},
		{", every 5 ms", "，每 5 ms"}, {", every 100 ms", "，每 100 ms"}, {"fencelock on a quorum", "fencelock，多数"},
		{"redsync on a quorum", "redsync，多数"}, {"fencelock on ", "fencelock，"}, {quorumFloor, "多数的两次 PING"},
		{"put and delete", "put 与 delete"}, {"create and delete", "create 与 delete"}, {"two updates", "两次 UPDATE"},
	} {
		peer = strings.ReplaceAll(peer, x[0], x[1])
	}
	return peer
}

// printTables prints what a case has measured.
func printTables(w io.Writer, rs results) {
	for _, t := range tables(rs) {
		t.write(w, rs, english)
	}
	printProfile(w, rs, english)
}
