package main

import (
	"strings"

	"github.com/fencelock/fencelock/verify/others"
)

// heatMap returns the picture of what locks did under faults.
func heatMap() (picture, error) {
	heads, rows, err := others.Matrix(verify)
	if err != nil {
		return picture{}, err
	}
	const left, cell, top, line = 250, 62, 56, 27
	width, height := left+cell*len(heads)+14, top+line*len(rows)+14
	return picture{name: "others", width: width, height: height, english: true, draw: func(c *canvas) {
		for i, h := range heads {
			x := left + cell*i + cell/2 - 1
			words := strings.Fields(h)
			for n, w := range words {
				c.sized(x, top-8-16*(len(words)-1-n), 13, "middle", c.muted, w)
			}
		}
		for i, r := range rows {
			y := top + line*i
			if r.Ours {
				c.bold(left-10, y+18, "end", c.ink, r.Name)
			} else {
				c.sized(left-10, y+18, 15, "end", c.ink, r.Name)
			}
			for n, what := range r.Cells {
				drawCell(c, left+cell*n, y, cell-2, line-2, what)
			}
		}
	}}, nil
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
	c.sized(x+w/2, y+17, 13, "middle", c.ink, what.Text)
}
