package main

import "fmt"

// drawLateWrite: A pauses past its lease, B is granted, and the database refuses the write of A.
func drawLateWrite(c *canvas) {
	const a, db, b = 96, 300, 504
	c.head(a, 432, c.say("Process A", "进程 A"))
	c.head(db, 432, c.say("Database", "数据库"))
	c.head(b, 432, c.say("Process B", "进程 B"))

	c.span(a, 70, 128, c.holds, false)
	c.text(a+14, 88, "start", c.holds, c.say("locks, token 7", "加锁，token 7"))
	c.arrow(a+6, db-8, 120, c.ink, c.say("write, 7", "写入，7"))
	c.text(db+14, 125, "start", c.muted, c.say("largest: 7", "最大值 7"))

	c.span(a, 132, 340, c.waits, true)
	c.text(a+14, 166, "start", c.muted, c.say("frozen for 40 s", "卡住 40 秒"))
	c.moment(30, 200, a+190, 200)
	c.text(a+14, 220, "start", c.lost, c.say("its lease ends", "租约到期"))

	c.span(b, 226, 400, c.holds, false)
	c.text(b-14, 244, "end", c.holds, c.say("locks, token 8", "加锁，token 8"))
	c.arrow(b-6, db+8, 284, c.ink, c.say("write, 8", "写入，8"))
	c.text(db-14, 289, "end", c.muted, c.say("largest: 8", "最大值 8"))

	c.span(a, 342, 400, c.lost, false)
	c.arrow(a+6, db-8, 370, c.lost, c.say("wakes up: write, 7", "醒来写入，7"))
	c.box(db+12, 350, 168, 40, c.paper, c.lost)
	c.bold(db+96, 375, "middle", c.lost, c.say("refused: 7 < 8", "拒绝：7 < 8"))
	c.sized(300, 446, 14, "middle", c.muted, c.say(
		"No lock can stop the late write. The token lets the database refuse it.", "锁拦不住迟到的写入；有了 token，数据库可以拒绝它。"))
}

// drawLease: the holder counts its lease from when it sent, so its deadline comes before the end in the store.
func drawLease(c *canvas) {
	const sent, arrived, answered, deadline, end = 130, 180, 230, 470, 520
	c.bold(20, 78, "start", c.ink, c.say("holder", "持有者"))
	c.bold(20, 188, "start", c.ink, c.say("store", "存储"))
	c.box(sent, 60, deadline-sent, 28, c.band, c.holds)
	c.text((sent+deadline)/2, 80, "middle", c.holds, c.say("lease as the holder counts it", "持有者计算的租约"))
	c.box(arrived, 170, end-arrived, 28, c.band, c.rule)
	c.text((arrived+end)/2, 190, "middle", c.ink, c.say("lease as the store counts it", "存储计算的租约"))
	c.line(sent, 92, arrived, 166, c.ink)
	c.text(sent-4, 128, "end", c.muted, c.say("request", "请求"))
	c.line(arrived+2, 166, answered, 92, c.ink)
	c.text(answered-4, 138, "start", c.muted, c.say("response", "响应"))
	c.moment(deadline, 40, deadline, 232)
	c.moment(end, 150, end, 256)
	c.text(deadline, 32, "middle", c.lost, c.say("context ends, work stops", "context 结束，任务停下"))
	c.text(deadline-8, 228, "end", c.muted, c.say("deadline", "截止时间"))
	c.text(end+8, 276, "end", c.ink, c.say("the earliest next grant", "下一次授予最早在此"))
}

// drawHandOff: the goroutines of a process stand in one line, and the store sees one claim.
func drawHandOff(c *canvas) {
	c.box(20, 20, 380, 290, c.band, c.rule)
	c.bold(40, 50, "start", c.ink, c.say("your process", "你的进程"))
	for i := range 5 {
		y := 92 + i*44
		colour := c.muted
		if i == 0 {
			colour = c.holds
		}
		c.add(`<circle cx="60" cy="%d" r="15" fill="%s" stroke="%s" stroke-width="2"/>`, y, c.paper, colour)
		c.text(60, y+5, "middle", c.ink, fmt.Sprint("g", i+1))
		c.text(92, y+5, "start", colour, fmt.Sprint("token ", 4100+i))
		if i < 4 {
			c.line(60, y+17, 60, y+27, c.holds)
		}
	}
	c.text(205, 176, "start", c.muted, c.say("handed on in memory,", "在内存里交接，"))
	c.text(205, 198, "start", c.muted, c.say("each with a token", "各有自己的 token"))
	c.box(490, 110, 90, 110, c.band, c.rule)
	c.bold(535, 160, "middle", c.ink, c.say("store", "存储"))
	c.text(535, 184, "middle", c.muted, c.say("1 claim", "1 个请求"))
	c.line(190, 92, 486, 130, c.holds)
	c.text(406, 92, "start", c.holds, c.say("one request in", "加锁 1 次"))
	c.line(190, 268, 486, 200, c.holds)
	c.text(406, 262, "start", c.holds, c.say("one request out", "释放 1 次"))
}

// drawFailover: the primary forgets a grant, two processes hold the name, and tokens rise all the same.
func drawFailover(c *canvas) {
	const a, store, b = 96, 300, 504
	c.head(a, 440, c.say("Process A", "进程 A"))
	c.head(store, 440, "Redis")
	c.head(b, 440, c.say("Process B", "进程 B"))
	c.span(a, 80, 330, c.holds, false)
	c.arrow(a+6, store-8, 90, c.ink, c.say("lock", "加锁"))
	c.text(store+14, 95, "start", c.muted, "token 5100")
	c.box(store-120, 126, 240, 58, c.paper, c.lost)
	c.bold(store, 150, "middle", c.lost, c.say("the primary dies", "主节点宕机"))
	c.text(store, 172, "middle", c.lost, c.say("the replica has no lock", "从节点没有这把锁"))
	c.span(b, 226, 420, c.holds, false)
	c.arrow(b-6, store+8, 236, c.ink, c.say("lock", "加锁"))
	c.text(store-14, 241, "end", c.muted, "token 9400")
	c.moment(30, 330, 570, 330)
	c.text(store, 284, "middle", c.muted, c.say("both hold it until A renews", "A 续期之前，两个都持有"))
	c.arrow(a+6, store-8, 322, c.lost, c.say("renew: gone", "续期：没了"))
	c.span(a, 330, 420, c.lost, false)
	c.text(a+14, 356, "start", c.lost, c.say("context ends", "context 结束"))
	c.text(store+14, 356, "start", c.muted, c.say("a write with 5100", "带 5100 的写入"))
	c.text(store+14, 378, "start", c.muted, c.say("is refused after 9400", "在 9400 之后被拒绝"))
	c.sized(300, 462, 14, "middle", c.muted, c.say(
		"Tokens come from the server's clock, so they rise although the counter is lost.",
		"token 取自服务器的时钟，数据丢了也照样递增。"))
}

// drawChoose asks for a store, question by question.
func drawChoose(c *canvas) {
	rows := []struct{ ask, askZH, take, takeZH string }{
		{"All programs on one host?", "程序都在一台机器上？", "SQLite file", "SQLite 文件"},
		{"Only a transaction of your own?", "只保护自己的一个事务？", "sqllock.Tx", "sqllock.Tx"},
		{"Must survive a lost store server?", "存储坏一台，锁也不能丢？", "etcd, ZooKeeper", "etcd、ZooKeeper"},
		{"Redis runs already?", "已经在用 Redis？", "redislock", "redislock"},
		{"A SQL database runs already?", "已经在用 SQL 数据库？", "sqllock", "sqllock"},
	}
	for i, r := range rows {
		y := 20 + i*84
		c.box(20, y, 300, 48, c.band, c.rule)
		c.text(170, y+30, "middle", c.ink, c.say(r.ask, r.askZH))
		c.line(322, y+24, 406, y+24, c.holds)
		c.text(362, y+16, "middle", c.holds, c.say("yes", "是"))
		c.box(410, y, 170, 48, c.paper, c.holds)
		c.bold(495, y+30, "middle", c.holds, c.say(r.take, r.takeZH))
		c.line(170, y+50, 170, y+80, c.muted)
		c.text(182, y+72, "start", c.muted, c.say("no", "否"))
	}
	c.box(20, 440, 300, 48, c.paper, c.rule)
	c.text(170, 470, "middle", c.ink, c.say("start with one Redis server", "先用一台 Redis"))
}

// drawBridge: programs of three deployments, and the stores that each of them locks in.
func drawBridge(c *canvas) {
	const left, deploy2, gone1, deploy3, gone2, right = 120, 190, 300, 400, 510, 620
	c.bold(16, 96, "start", c.ink, "old store")
	c.bold(16, 176, "start", c.ink, "new store")
	bar := func(x, end, y int, colour, text string) {
		c.box(x, y, end-x, 28, c.band, colour)
		c.text((x+end)/2, y+20, "middle", colour, text)
	}
	for i, x := range []int{deploy2, gone1, deploy3, gone2} {
		c.moment(x, 44, x, 224)
		c.sized(x, 36, 14, "middle", c.muted, []string{"deploy 2", "1 is gone", "deploy 3", "2 is gone"}[i])
	}
	bar(left, gone1, 60, c.muted, "1: old")
	bar(deploy2, gone2, 94, c.holds, "2: locked first")
	bar(deploy2, gone2, 140, c.holds, "2: locked second")
	bar(deploy3, right, 174, c.muted, "3: new")
	c.line(left, 224, right+20, 224, c.ink)
	c.sized(left, 246, 14, "start", c.muted, "time")
	c.sized(330, 274, 14, "middle", c.muted,
		"Deployments that overlap share a store, so their programs exclude one another.")
}
