package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fencelock/fencelock/verify/check"
	"github.com/fencelock/fencelock/verify/traffic"
)

// drawing is the picture of a run: grants in slices of its time, then a row for each fault
// and each worker that was stopped or killed, and the breaches. Lengths are pixels.
type drawing struct {
	Width, Height int
	Most          int // grants of a slice
	Bars          []bar
	Labels        []label

	begun int64
	scale float64 // pixels per ns
}

type bar struct {
	X, Y, W, H  float64
	Color, Text string
}

type label struct {
	X, Y float64
	Text string
}

const (
	width     = 1100
	margin    = 130
	grants    = 120
	rowHeight = 18
)

func picture(lines []traffic.Line, v *check.Verdict) drawing {
	d := drawing{Width: width + margin + 20}
	if len(lines) == 0 {
		return d
	}
	d.begun = lines[0].At
	took := max(time.Duration(lines[len(lines)-1].At-d.begun), 1)
	d.scale = width / float64(took)
	d.drawGrants(lines)
	d.drawFaults(lines)
	for _, one := range v.Violations {
		if one.At != 0 {
			d.Bars = append(d.Bars, bar{d.x(one.At), 0, 1, float64(d.Height), "#b00020", one.String()})
		}
	}
	step := max(took/10, 1).Round(time.Second)
	for t := time.Duration(0); step > 0 && t <= took; t += step {
		d.Labels = append(d.Labels, label{d.x(d.begun + int64(t)), grants + 20, t.String()})
	}
	return d
}

func (d *drawing) x(at int64) float64 { return margin + float64(at-d.begun)*d.scale }

// drawGrants draws the grants in as many slices as there is room for.
func (d *drawing) drawGrants(lines []traffic.Line) {
	const columns = 220
	counts := make([]int, columns+1)
	for _, l := range lines {
		if l.Op == traffic.Held && l.Handle == "" {
			counts[int(float64(l.At-d.begun)*d.scale/width*columns)]++
		}
	}
	d.Most = slices.Max(counts)
	for i, n := range counts {
		h := float64(n) / float64(max(d.Most, 1)) * grants
		x := margin + float64(i)*width/columns
		d.Bars = append(d.Bars, bar{x, grants - h, width/columns - 0.5, h, "#5b8db8", fmt.Sprint(n, " grants")})
	}
}

// drawFaults draws the faults, and the workers that were stopped or killed.
func (d *drawing) drawFaults(lines []traffic.Line) {
	rows := map[string][]bar{}
	add := func(name string, from, to int64, text string) {
		w := max(d.x(to)-d.x(from), 2)
		rows[name] = append(rows[name], bar{X: d.x(from), W: w, H: rowHeight - 4, Color: "#d98c3f", Text: text})
	}
	begun := map[string]int64{}
	for _, l := range lines {
		worker, _, _ := strings.Cut(l.Proc, ".")
		switch l.Op {
		case traffic.Begin:
			begun[l.Text] = l.At
		case traffic.End:
			took := time.Duration(l.At - begun[l.Text]).Round(time.Millisecond)
			add(l.Text, begun[l.Text], l.At, fmt.Sprintf("%s %v", l.Text, took))
		case traffic.Stop:
			begun[l.Proc] = l.At
		case traffic.Resume:
			add(worker+" stopped", begun[l.Proc], l.At, l.Proc+" stopped")
		case traffic.Crash:
			add(worker+" killed", l.At, l.At, l.Proc+" killed")
		}
	}
	y := float64(grants + 30)
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		d.Labels = append(d.Labels, label{4, y + 11, name})
		for _, b := range rows[name] {
			b.Y = y
			d.Bars = append(d.Bars, b)
		}
		y += rowHeight
	}
	d.Height = int(y) + 20
}
