package main

import (
	"strings"

	"github.com/fencelock/fencelock/verify/others"
)

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
