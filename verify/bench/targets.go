package bench

import (
	"fmt"
	"io"
	"math"
)

// target is one thing that is to be reached, and what was measured of it.
type target struct {
	group  string // what it is about
	en, zh string
	value  float64
	most   bool // value is to be at most what is wanted, otherwise at least
	below  bool // at most or at least is to be taken strictly
	wanted float64
	unit   string
	slack  float64 // what a few samples at the edges may add to the value
	beside string  // a number beside the value
	limit  limit   // what cannot be passed; the zero one if nobody measures it
}

// limit is what the least that any lock with the same guarantees has to do has reached,
// in the same rounds.
type limit struct {
	by    string // the peer that does it
	value float64
}

func (l limit) known() bool { return l.by != "" && !math.IsNaN(l.value) }

func (t target) known() bool { return !math.IsNaN(t.value) && !math.IsNaN(t.wanted) }

func (t target) holds() bool { return t.reached(t.value) }

// refuted reports that the limit does not reach what is wanted either.
func (t target) refuted() bool { return !t.holds() && t.limit.known() && !t.reached(t.limit.value) }

func (t target) reached(x float64) bool {
	switch {
	case t.below && t.most:
		return x < t.wanted
	case t.below:
		return x > t.wanted
	case t.most:
		return x <= t.wanted+t.slack
	}
	return x >= t.wanted
}

// targets are what the project wants to reach, each judged by this run alone.
func targets(rs results) (all []target) {
	add := func(t target) { all = append(all, t) }

	free := rs.part("free", 1)
	add(target{group: "1", en: "free lock on Redis: requests", zh: "Redis 上空闲的锁：请求数", value: free.value(ours, "requests"), most: true, wanted: 2, slack: 0.01})
	add(target{group: "1", en: "free lock on Redis: p50, × raw SET NX and compare-and-delete", zh: "Redis 上空闲的锁：p50，是 SET NX 加比较删除的几倍",
		value: free.ratio(ours, floor, "p50_us"), most: true, wanted: 1.15, unit: "×",
		limit: limit{bare, free.ratio(bare, floor, "p50_us")}})
	who, allocs := free.best("allocs", true)
	add(target{group: "1", en: "free lock: allocations, against the peer with fewest (" + who + ")", zh: "空闲的锁：分配次数，与最少的同类（" + who + "）相比",
		value: free.value(ours, "allocs"), most: true, below: true, wanted: math.Round(allocs)})
	add(target{group: "1", en: "the core on memlock: µs a pair", zh: "核心，在 memlock 上：每次 µs", value: free.value(oursMemory, "p50_us"), most: true, below: true, wanted: 1.5, unit: "µs"})
	add(target{group: "1", en: "the core on memlock: allocations a pair", zh: "核心，在 memlock 上：每次分配", value: free.value(oursMemory, "allocs"), most: true, wanted: 6, slack: 0.05})

	keys := rs.part("keys", 512)
	add(target{group: "2", en: "512 keys: pairs/s, × raw go-redis", zh: "512 个键：每秒次数，是直接用 go-redis 的几倍", value: keys.ratio(ours, floor, "pairs_per_s"), wanted: 3, unit: "×",
		limit: limit{bareAuto, keys.ratio(bareAuto, floor, "pairs_per_s")}})
	who, _ = keys.best("pairs_per_s", false)
	add(target{group: "2", en: "512 keys: pairs/s, × the best peer (" + who + ")", zh: "512 个键：每秒次数，是最好的同类（" + who + "）的几倍",
		value: keys.ratio(ours, who, "pairs_per_s"), wanted: 1.8, unit: "×",
		limit: limit{bareAuto, keys.ratio(bareAuto, who, "pairs_per_s")}})

	for _, size := range []int{8, 64, 512} {
		hot := rs.part("hot", size)
		en, zh := fmt.Sprintf("hot key, %d goroutines: ", size), fmt.Sprintf("热键，%d 个 goroutine：", size)
		add(target{group: "3", en: en + "hand-overs/s, × rueidislock", zh: zh + "每秒移交，是 rueidislock 的几倍",
			value: hot.ratio(ours, fairPeer, "handovers_per_s"), wanted: 50, unit: "×",
			limit: limit{queueAsks, hot.ratio(queueAsks, fairPeer, "handovers_per_s")}})
		add(target{group: "3", en: en + "Jain", zh: zh + "Jain", value: hot.value(ours, "jain"), wanted: 0.98})
		add(target{group: "3", en: en + "p99 wait, × rueidislock's", zh: zh + "p99 等待，是 rueidislock 的几倍",
			value: hot.ratio(ours, fairPeer, "p99_ms"), most: true, below: true, wanted: 0.01, unit: "×",
			limit: limit{queueAsks, hot.ratio(queueAsks, fairPeer, "p99_ms")}})
		add(target{group: "3", en: en + "server requests for each acquisition", zh: zh + "每次获取的服务器请求",
			value: hot.value(ours, "requests"), most: true, wanted: 0.1})
	}
	stranger := rs.part("stranger", 0)
	add(target{group: "3", en: "another process beside 64 goroutines: its p99 wait, × that without hand-off, in strict order", zh: "64 个 goroutine 旁边的另一进程：p99 等待，是不移交、严格排队时的几倍",
		value: stranger.ratio(ours, strict, "stranger_p99_ms"), most: true, wanted: 1, unit: "×",
		beside: short(stranger.value(ours, "stranger_p99_ms")) + " ms; rueidislock " + short(stranger.value(fairPeer, "stranger_p99_ms")) + " ms"})

	processes := rs.part("processes", 0)
	add(target{group: "4", en: "4 processes × 8: hand-overs/s, × rueidislock", zh: "4 个进程 × 8：每秒移交，是 rueidislock 的几倍",
		value: processes.ratio(ours, fairPeer, "handovers_per_s"), wanted: 3, unit: "×"})
	add(target{group: "4", en: "4 processes × 8: Jain", zh: "4 个进程 × 8：Jain", value: processes.value(ours, "jain"), wanted: 0.95})
	add(target{group: "4", en: "4 processes × 8, HandOff 1: hand-overs/s, × rueidislock", zh: "4 个进程 × 8，HandOff 1：每秒移交，是 rueidislock 的几倍",
		value: processes.ratio(strict, fairPeer, "handovers_per_s"), below: true, wanted: 1, unit: "×"})
	crosses := func(r results, library, least, en, zh string) {
		who, best := r.best("crossing_p50_us", true)
		add(target{group: "4", en: en + ": hand-over between processes, p50, against the best peer (" + who + ")", zh: zh + "：跨进程移交 p50，与最好的同类（" + who + "）相比",
			value: r.value(library, "crossing_p50_us"), most: true, below: true, wanted: best, unit: "µs",
			limit: limit{least, r.value(least, "crossing_p50_us")}})
	}
	crosses(processes, ours, lineLeast, "4 processes × 8", "4 个进程 × 8")
	crosses(processes, strict, lineStrict, "4 processes × 8, HandOff 1", "4 个进程 × 8，HandOff 1")
	crosses(rs.part("rests", 0), strict, lineStrict, "4 processes × 8 that rest between two locks, HandOff 1", "4 个进程 × 8，两次锁之间休息，HandOff 1")

	held := rs.part("held", 100000)
	add(target{group: "5", en: "100 000 leases: renewal requests/s, % of the leases renewed/s", zh: "100 000 个租约：每秒续约请求，占每秒续约租约的 %",
		value: held.value(ours, "requests_share"), most: true, wanted: 1, unit: "%"})
	add(target{group: "5", en: "10 000 leases: client CPU, × rueidislock's", zh: "10 000 个租约：客户端 CPU，是 rueidislock 的几倍",
		value: rs.part("held", 10000).ratio(ours, readme, "cpu_percent"), most: true, below: true, wanted: 1.0 / 3, unit: "×"})
	add(target{group: "5", en: "100 000 leases: client CPU, × rueidislock's", zh: "100 000 个租约：客户端 CPU，是 rueidislock 的几倍",
		value: held.ratio(ours, readme, "cpu_percent"), most: true, below: true, wanted: 1.0 / 3, unit: "×"})
	add(target{group: "5", en: "100 000 leases: bytes each", zh: "100 000 个租约：每个字节数", value: held.value(ours, "bytes"), most: true, below: true, wanted: 600})
	add(target{group: "5", en: "100 000 leases: goroutines each", zh: "100 000 个租约：每个 goroutine 数", value: held.value(ours, "goroutines"), most: true, wanted: 0, slack: 0.001})
	busy := rs.part("busy", 0)
	add(target{group: "5", en: "100 000 leases, all processors busy: lost", zh: "100 000 个租约，处理器全忙：丢失", value: busy.sum(ours, "lost"), most: true, wanted: 0,
		beside: "rueidislock: " + short(busy.sum(readme, "lost"))})

	line := rs.part("line", 0)
	sizes := line.sizes()
	if len(sizes) > 1 {
		short, long := rs.part("line", sizes[0]), rs.part("line", sizes[len(sizes)-1])
		add(target{group: "6", en: fmt.Sprintf("line of %d Clients: server time a hand-over, × that of %d", sizes[len(sizes)-1], sizes[0]),
			zh:    fmt.Sprintf("%d 个 Client 的队列：每次移交的服务器时间，是 %d 个时的几倍", sizes[len(sizes)-1], sizes[0]),
			value: long.value(ours, "server_us") / short.value(ours, "server_us"), most: true, wanted: 2, unit: "×"})
	}

	for _, store := range storeOrder {
		s := stores[store]
		free := rs.part(storePart(store, "free"), 0)
		add(target{group: "7", en: store + ": free locks/s, × the floor (" + s.floor + ")", zh: store + "：空闲的锁每秒，是下限（" + inChinese(s.floor) + "）的几倍",
			value: 1 / free.ratio(s.ours, s.floor, "p50_us"), wanted: 0.9, unit: "×",
			limit: limit{storeLimits[store], 1 / free.ratio(storeLimits[store], s.floor, "p50_us")}})
		for _, part := range []struct{ name, en, zh string }{{"hot", "64 goroutines on one key", "64 个 goroutine 争一个键"}, {"processes", "4 processes × 8 on one key", "4 个进程 × 8 争一个键"}} {
			add(target{group: "7", en: store + ", " + part.en + ": hand-overs/s, × " + s.peer, zh: store + "，" + part.zh + "：每秒移交，是 " + s.peer + " 的几倍",
				value: rs.part(storePart(store, part.name), 0).ratio(s.ours, s.peer, "handovers_per_s"), below: true, wanted: 1, unit: "×"})
		}
	}
	quorum := rs.part("redlock free", 5)
	add(target{group: "7", en: "Redlock over five servers: p50, × two PINGs of a majority", zh: "五台服务器的 Redlock：p50，是多数的两次 PING 的几倍",
		value: quorum.ratio("fencelock on a quorum", quorumFloor, "p50_us"), most: true, wanted: 1.3, unit: "×",
		beside: "redsync: " + short(quorum.ratio("redsync on a quorum", quorumFloor, "p50_us")) + " ×",
		limit:  limit{quorumLeast, quorum.ratio(quorumLeast, quorumFloor, "p50_us")}})
	return all
}

// PrintTargets prints what holds and what does not.
func (m *Measured) PrintTargets(w io.Writer) { printTargets(w, m.Results, english) }

func printTargets(w io.Writer, rs results, l language) {
	fmt.Fprintf(w, "| | %s | %s | %s | %s | %s | %s | %s |\n| --- | --- | --: | --: | --: | --: | --: | --- |\n", l.pick("what", "内容"), l.pick("wanted", "目标"),
		l.pick("measured", "测得"), l.pick("÷ wanted", "÷ 目标"), l.pick("the limit, measured", "测得的极限"), l.pick("÷ the limit", "÷ 极限"), l.pick("holds", "成立"))
	for _, t := range targets(rs) {
		if !t.known() {
			continue
		}
		sign := "≥"
		switch {
		case t.most && t.below:
			sign = "<"
		case t.most:
			sign = "≤"
		case t.below:
			sign = ">"
		}
		unit := t.unit
		if unit != "" {
			unit = " " + unit
		}
		// A line that holds needs no limit.
		verdict, least, times := l.pick("yes", "是"), "–", "–"
		switch {
		case t.refuted():
			verdict = l.pick("**no: the limit is ", "**否：极限是 ") + short(t.limit.value) + unit + "**"
		case !t.holds():
			verdict = l.pick("**no**", "**否**")
		}
		if !t.holds() && t.limit.known() {
			least = short(t.limit.value) + unit + l.pick(" ("+t.limit.by+")", "（"+inChinese(t.limit.by)+"）")
			times = quotient(t.value, t.limit.value)
		}
		measured := short(t.value) + unit
		if t.beside != "" {
			measured += " (" + t.beside + ")"
		}
		fmt.Fprintf(w, "| %s | %s | %s %s%s | %s | %s | %s | %s | %s |\n", t.group, l.pick(t.en, t.zh), sign, short(t.wanted), unit, measured,
			quotient(t.value, t.wanted), least, times, verdict)
	}
}

// quotient is x/y, if there is one.
func quotient(x, y float64) string {
	if y == 0 {
		return "–"
	}
	return short(x / y)
}
