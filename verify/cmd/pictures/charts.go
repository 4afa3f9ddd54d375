package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/fencelock/fencelock/verify/others"
)

// charts returns the pictures of what was measured.
func charts() ([]picture, error) {
	text, err := os.ReadFile(filepath.Join(verify, "bench", "tables.md"))
	if err != nil {
		return nil, err
	}
	page := string(text)
	ratios, err := comparisons(page)
	if err != nil {
		return nil, err
	}
	costs, err := stores(page)
	if err != nil {
		return nil, err
	}
	faults, err := heatMap()
	if err != nil {
		return nil, err
	}
	all := []picture{speed(ratios), drawStores(costs), faults}
	for _, one := range barCharts {
		bars, err := one.read(page)
		if err != nil {
			return nil, err
		}
		all = append(all, one.picture(bars))
	}
	return all, nil
}

// A barChart has a bar for some rows of a table of bench/tables.md.
type barChart struct {
	name, title  string
	table        string // the bold title in the page begins so
	column       int
	unit, format string
	rows         []string
}

var barCharts = []barChart{
	{
		name: "free-lock", title: "A free lock on Redis and its release: median time",
		table:  "**Free lock: one goroutine",
		column: 1, unit: "µs", format: "%.1f",
		rows: []string{"raw go-redis", "bsm/redislock", "fencelock", "rueidislock, 1 key", "redsync"},
	},
	{
		name: "held", title: "10 000 leases of 3 s, all renewed: requests per second",
		table:  "**10000 leases held",
		column: 1, unit: "/s", format: "%.0f",
		rows: []string{"fencelock", "bsm/redislock", "redsync", "rueidislock, README", "rueidislock, 1 key"},
	},
}

type bar struct {
	name  string
	value float64
}

func (b barChart) read(page string) ([]bar, error) {
	bars := make([]bar, len(b.rows))
	for i, row := range b.rows {
		value, err := figureBelow(page, b.table, row, b.column)
		if err != nil {
			return nil, err
		}
		bars[i] = bar{row, value}
	}
	return bars, nil
}

// picture draws the bars from 0, or on a logarithmic scale from 1 if they differ by more than a
// hundred times. A scale is below them.
func (b barChart) picture(bars []bar) picture {
	least, most := math.Inf(1), 0.0
	for _, one := range bars {
		least, most = min(least, one.value), max(most, one.value)
	}
	logarithmic := most > 100*least
	scale := func(x float64) int {
		if logarithmic {
			return int(math.Log10(x) / math.Log10(most) * 300)
		}
		return int(x / most * 300)
	}
	height := 100 + 34*len(bars)
	return picture{name: b.name, width: 600, height: height, english: true, draw: func(c *canvas) {
		const left = 190
		c.bold(20, 32, "start", c.ink, b.title)
		end, kind := 54+34*len(bars), "linear, from 0"
		if logarithmic { // the lines are behind the bars and their figures
			kind = "logarithmic: 1"
			for x := 10.0; x < most; x *= 10 {
				c.moment(left+scale(x), 50, left+scale(x), end)
				kind += fmt.Sprintf(", %.0f", x)
			}
		}
		c.sized(left, end+24, 13, "start", c.muted, kind)
		for i, one := range bars {
			y, colour := 54+34*i, c.waits
			if strings.HasPrefix(one.name, "fencelock") {
				colour = c.holds
			}
			c.text(left-8, y+17, "end", c.ink, one.name)
			c.add(`<rect x="%d" y="%d" width="%d" height="22" fill="%s"/>`, left, y, scale(one.value), colour)
			c.onPaper(left+scale(one.value)+8, y+16, 14, c.ink, fmt.Sprintf(b.format+" %s", one.value, b.unit))
		}
	}}
}

// heatMap returns the picture of what locks did under faults. It has two halves, one below the
// other, so that its words can be read on a telephone.
func heatMap() (picture, error) {
	heads, rows, err := others.Matrix(verify)
	if err != nil {
		return picture{}, err
	}
	half := (len(heads) + 1) / 2
	tall := 66 + heatLine*len(rows)
	return picture{name: "others", width: 600, height: 2*tall + 14, english: true, draw: func(c *canvas) {
		drawHeat(c, 0, heads, rows, 0, half)
		drawHeat(c, tall, heads, rows, half, len(heads))
	}}, nil
}

const heatLine = 28

// drawHeat draws the columns from first to end, with the names of the rows, below y.
func drawHeat(c *canvas, y int, heads []string, rows []others.Row, first, end int) {
	const left, cell = 240, 71
	for i, h := range heads[first:end] {
		words := strings.Fields(h)
		for n, w := range words {
			c.sized(left+cell*i+cell/2-1, y+48-18*(len(words)-1-n), 15, "middle", c.muted, w)
		}
	}
	for i, r := range rows {
		y := y + 56 + heatLine*i
		if r.Ours {
			c.bold(left-10, y+19, "end", c.ink, r.Name)
		} else {
			c.text(left-10, y+19, "end", c.ink, r.Name)
		}
		for n, what := range r.Cells[first:end] {
			drawCell(c, left+cell*n, y, cell-2, heatLine-2, what)
		}
	}
}

func drawCell(c *canvas, x, y, w, h int, what others.Cell) {
	colour, opacity := c.band, 1.0
	switch what.Kind {
	case others.Good:
		colour, opacity = c.holds, 0.3
	case others.Both:
		colour, opacity = c.lost, 0.2+0.6*what.Heat
	case others.Wait:
		colour, opacity = c.waits, 0.15+0.5*what.Heat
	}
	c.add(`<rect x="%d" y="%d" width="%d" height="%d" rx="3" fill="%s" fill-opacity="%.2f"/>`,
		x, y, w, h, colour, opacity)
	c.sized(x+w/2, y+18, 15, "middle", c.ink, what.Text)
}
