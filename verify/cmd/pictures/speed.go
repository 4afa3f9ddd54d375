package main

import (
	"math"
	"strconv"
)

// A comparison is one bar: how many times as fast fencelock is as another library.
type comparison struct {
	what, whatZH, with string
	times              float64
}

// comparisons reads the figures from the page of tables.
func comparisons(page string) (all []comparison, err error) {
	all = []comparison{
		{what: "hot key, 64 goroutines", whatZH: "热点 key，64 个 goroutine", with: "rueidislock"},
		{what: "4 processes × 8", whatZH: "4 个进程 × 8", with: "rueidislock"},
		{what: "4 processes × 8, strict order", whatZH: "4 个进程 × 8，严格按序", with: "rueidislock"},
		{what: "512 keys", whatZH: "512 个 key", with: "bsm/redislock, pipelined"},
		{what: "a free lock", whatZH: "空闲的锁", with: "bsm/redislock"},
	}
	for i, name := range []string{
		"hot key, 64 goroutines: hand-overs/s, × rueidislock, 1 key",
		"4 processes × 8: hand-overs/s, × rueidislock, 1 key",
		"4 processes × 8, HandOff 1: hand-overs/s, × rueidislock, 1 key",
	} {
		if all[i].times, err = figureBelow(page, "## Targets", name, 2); err != nil {
			return nil, err
		}
	}
	const free, keys = "**Free lock: one goroutine", "**512 goroutines, 512 keys**"
	ours, theirs, err := rows(page, keys, "bsm/redislock, autopipelined")
	if err != nil {
		return nil, err
	}
	all[3].times = ours / theirs // pairs a second
	ours, theirs, err = rows(page, free, "bsm/redislock")
	all[4].times = theirs / ours // a time
	return all, err
}

// rows returns the first figures of fencelock and of another library in a table.
func rows(page, title, other string) (ours, theirs float64, err error) {
	if ours, err = figureBelow(page, title, "fencelock", 1); err == nil {
		theirs, err = figureBelow(page, title, other, 1)
	}
	return ours, theirs, err
}

// speed returns a picture of the comparisons as bars on a logarithmic scale: to the right of 1
// fencelock is faster, to the left the other.
func speed(all []comparison) picture {
	return picture{name: "speed", width: 600, height: 84 + 52*len(all), draw: func(c *canvas) {
		const one, decade, first = 240, 125, 70
		c.bold(20, 32, "start", c.ink, c.say(
			"Redis: rate of fencelock ÷ rate of another library", "Redis：fencelock 的速度 ÷ 另一个库的速度"))
		for i, of := range all {
			y := first + 52*i
			colour, from := c.holds, one
			length := int(math.Abs(math.Log10(of.times)) * decade)
			if of.times < 1 {
				colour, from = c.lost, one-length
			}
			c.sized(20, y-4, 14, "start", c.ink, c.say(of.what, of.whatZH))
			c.sized(580, y-4, 14, "end", c.muted, "÷ "+of.with)
			c.add(`<rect x="%d" y="%d" width="%d" height="16" fill="%s"/>`, from, y+4, length, colour)
			c.bold(max(one, from+length)+8, y+18, "start", colour, strconv.FormatFloat(of.times, 'g', 3, 64)+" ×")
		}
		end := first + 52*len(all)
		for i, times := range []string{c.say("equal", "相同"), "10 ×", "100 ×"} {
			x := one + i*decade
			if i == 0 {
				c.moment(x, first, x, end-20)
			}
			c.sized(x, end, 13, "middle", c.muted, times)
		}
		c.sized(20, end, 13, "start", c.muted, c.say("logarithmic", "对数刻度"))
	}}
}
