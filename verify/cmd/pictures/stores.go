package main

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// A store has two bars: a free lock and its release, and a hand-over between two programs.
type store struct {
	name, title string  // the name in the page, and the title of its table of a free lock
	free, floor float64 // µs, and the ratio to the least that two writes cost there
	handOver    float64 // µs
}

// stores reads the figures from the page of tables.
func stores(page string) (all []store, err error) {
	all = []store{
		{name: "Redis", title: "**Free lock: one goroutine"},
		{name: "PostgreSQL", title: "**PostgreSQL: free lock**"},
		{name: "MariaDB", title: "**MariaDB: free lock**"},
		{name: "etcd", title: "**etcd: free lock**"},
		{name: "ZooKeeper", title: "**ZooKeeper: free lock**"},
	}
	for i := range all {
		s := &all[i]
		row, between := "fencelock on "+s.name, "**"+s.name+": hot key, 4 processes"
		if s.name == "Redis" {
			row, between = "fencelock", "**Hot key: 4 processes"
		}
		if s.free, err = figureBelow(page, s.title, row, 1); err != nil {
			return nil, err
		}
		if s.floor, err = figureBelow(page, s.title, row, 2); err != nil {
			return nil, err
		}
		if s.handOver, err = figureBelow(page, between, row+", HandOff 1", 4); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// figureBelow returns the number in a column of the first row of that name below a title.
func figureBelow(page, title, row string, column int) (float64, error) {
	_, below, found := strings.Cut(page, title)
	if !found {
		return 0, fmt.Errorf("the page of tables has no table %q", title)
	}
	cells := regexp.MustCompile(`(?m)^\| ` + regexp.QuoteMeta(row) + ` \|(.*)\|$`).FindStringSubmatch(below)
	if cells == nil {
		return 0, fmt.Errorf("the page of tables has no row %q below %q", row, title)
	}
	cell := strings.Split(cells[1], "|")[column-1]
	return strconv.ParseFloat(strings.NewReplacer(" ", "", "×", "").Replace(cell), 64)
}

// drawStores returns a picture of what a lock costs on each store, on a logarithmic scale.
func drawStores(all []store) picture {
	return picture{name: "stores", width: 600, height: 92 + 78*len(all), draw: func(c *canvas) {
		const left, decade, least = 126, 140, 10.0 // µs at the left end
		c.add(`<rect x="20" y="18" width="14" height="14" fill="%s"/>`, c.holds)
		c.text(42, 31, "start", c.ink, c.say("free lock and release", "空闲的锁：加锁加释放"))
		c.add(`<rect x="260" y="18" width="14" height="14" fill="%s"/>`, c.waits)
		c.text(282, 31, "start", c.ink, c.say("hand-over to another program", "交给另一个程序"))
		end := 50 + 78*len(all)
		for i, us := range []string{"10", "100", "1000 µs"} {
			x := left + i*decade
			c.moment(x, 50, x, end)
			c.sized(x, end+18, 13, "middle", c.muted, us)
		}
		c.sized(20, end+18, 13, "start", c.muted, c.say("logarithmic", "对数刻度"))
		bar := func(y int, colour string, us float64, text string) {
			length := int(math.Log10(us/least) * decade)
			c.add(`<rect x="%d" y="%d" width="%d" height="22" fill="%s"/>`, left, y, length, colour)
			c.onPaper(left+length+8, y+16, 14, c.ink, text)
		}
		for i, s := range all {
			y := 58 + 78*i
			c.bold(left-8, y+28, "end", c.ink, s.name)
			bar(y, c.holds, s.free, c.say(
				fmt.Sprintf("%.0f µs, %.2f × floor", s.free, s.floor),
				fmt.Sprintf("%.0f µs，%.2f × 下限", s.free, s.floor)))
			bar(y+26, c.waits, s.handOver, fmt.Sprintf("%.0f µs", s.handOver))
		}
	}}
}
