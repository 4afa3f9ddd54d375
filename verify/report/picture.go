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

// drawing is the picture of a run. Times are pixels.
type drawing struct {
	Begun  int64
	Width  int
	Height int
	Bars   []bar  // grants
	Rows   []row  // faults, workers
	Marks  []mark // breaches
	Most   int
	Ticks  []mark

	end   int64
	scale float64 // pixels per ns
}

type bar struct {
	X, Y, W, H float64
	Text       string
}

type row struct {
	Name string
	Y    int
	Bars []bar
}

type mark struct {
	X    float64
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
	d.Begun, d.end = lines[0].At, lines[len(lines)-1].At
	d.scale = width / float64(max(d.end-d.Begun, 1))
	d.drawGrants(lines)
	d.drawFaults(lines)
	for _, one := range v.Violations {
		if one.At != 0 {
			d.Marks = append(d.Marks, mark{d.x(one.At), one.String()})
		}
	}
	step := max(time.Duration(d.end-d.Begun)/10, 1).Round(time.Second)
	for t := time.Duration(0); step > 0 && t <= time.Duration(d.end-d.Begun); t += step {
		d.Ticks = append(d.Ticks, mark{d.x(d.Begun + int64(t)), t.String()})
	}
	return d
}

func (d *drawing) x(at int64) float64 { return margin + float64(at-d.Begun)*d.scale }

// drawGrants draws the grants in as many slices as there is room for.
func (d *drawing) drawGrants(lines []traffic.Line) {
	const columns = 220
	counts := make([]int, columns+1)
	for _, l := range lines {
		if l.Op == traffic.Held && l.Handle == "" {
			counts[int(float64(l.At-d.Begun)*d.scale/width*columns)]++
		}
	}
	d.Most = slices.Max(counts)
	for i, n := range counts {
		if n == 0 {
			continue
		}
		h := float64(n) / float64(d.Most) * grants
		d.Bars = append(d.Bars, bar{
			X: margin + float64(i)*width/columns, Y: grants - h, W: width/columns - 0.5, H: h,
			Text: fmt.Sprint(n, " grants"),
		})
	}
}

// drawFaults draws a row for each fault, and for each worker that was stopped or killed.
func (d *drawing) drawFaults(lines []traffic.Line) {
	rows := map[string][]bar{}
	add := func(name string, from, to int64, text string) {
		rows[name] = append(rows[name], bar{X: d.x(from), W: max(d.x(to)-d.x(from), 2), Text: text})
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
	y := grants + 30
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		for i := range rows[name] {
			rows[name][i].Y, rows[name][i].H = float64(y), rowHeight-4
		}
		d.Rows = append(d.Rows, row{name, y, rows[name]})
		y += rowHeight
	}
	d.Height = y + 20
}
