// Package report writes what a person can read about a run: what was done, the numbers,
// a picture of the faults and the grants, and of each breach the claims that clash.
package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fencelock/fencelock/verify/check"
	"github.com/fencelock/fencelock/verify/model"
	"github.com/fencelock/fencelock/verify/traffic"
)

// Run is what was done.
type Run struct {
	Name   string
	Seed   uint64
	TTL    time.Duration
	Faults string
	Again  string // the command
	Told   bool   // a holder is told of its loss
}

//go:embed report.html
var page string

var tmpl = template.Must(template.New("report").Parse(page))

// Write writes report.html into dir, and a page of the model's for the first keys that it
// refuses. It returns the path of the report.
func Write(dir string, r Run, lines []traffic.Line, v *check.Verdict) (string, error) {
	p := picture(lines, v)
	var drawn []string
	keys := make([]string, 0, len(v.Illegal))
	for key := range v.Illegal {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for i, key := range keys {
		if i == 3 {
			break
		}
		name := "model-" + strings.ReplaceAll(key, "/", "-") + ".html"
		if err := model.Draw(v.Illegal[key], 5*time.Second, filepath.Join(dir, name)); err != nil {
			return "", err
		}
		drawn = append(drawn, name)
	}
	path := filepath.Join(dir, "report.html")
	f, err := os.Create(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	var clashes []clash
	for i, one := range v.Violations {
		if i == 20 {
			break
		}
		clashes = append(clashes, clash{one, time.Duration(one.At - p.Begun), near(lines, one)})
	}
	err = tmpl.Execute(f, map[string]any{
		"Run": r, "N": v.Numbers, "Picture": p, "Clashes": clashes, "Drawn": drawn, "All": len(v.Violations),
	})
	if err != nil {
		return "", fmt.Errorf("writing %s: %w", path, err)
	}
	return path, f.Close()
}

// clash is one breach and the lines around it.
type clash struct {
	check.Violation
	At    time.Duration
	Lines []string
}

// near are the lines of the claims that clash, and of those beside them on the key.
func near(lines []traffic.Line, v check.Violation) []string {
	var text []string
	for _, l := range lines {
		mine := l.Claim != "" && slices.Contains(v.Claims, l.Claim)
		close := v.Key != "" && l.Key == v.Key && l.At > v.At-int64(time.Second) && l.At < v.At+int64(time.Second)
		if !mine && !close || l.Op == traffic.Final {
			continue
		}
		if len(text) == 60 {
			return append(text, "…")
		}
		mark := "  "
		if mine {
			mark = "▶ "
		}
		text = append(text, fmt.Sprintf("%s%+10.3f ms  %-11s %-14s token %d %s", mark, float64(l.At-v.At)/1e6, l.Op, l.Claim, l.Token, l.Text))
	}
	return text
}

// drawing is the picture: times are turned into pixels.
type drawing struct {
	Begun  int64
	Width  int
	Height int
	Bars   []bar  // grants
	Lanes  []lane // faults, workers
	Marks  []mark // breaches
	Most   int
	Ticks  []mark
}

type bar struct {
	X, Y, W, H float64
	Text       string
}

type lane struct {
	Name string
	Y    int
	Bars []bar
}

type mark struct {
	X    float64
	Text string
}

const (
	width  = 1100
	margin = 130
	grants = 120
	row    = 18
)

func picture(lines []traffic.Line, v *check.Verdict) drawing {
	d := drawing{Width: width + margin + 20}
	if len(lines) == 0 {
		return d
	}
	d.Begun = lines[0].At
	end := lines[len(lines)-1].At
	scale := width / float64(max(end-d.Begun, 1))
	x := func(at int64) float64 { return margin + float64(at-d.Begun)*scale }

	// Grants in as many slices as there is room for.
	const columns = 220
	counts := make([]int, columns+1)
	for _, l := range lines {
		if l.Op == traffic.Held && l.Handle == "" {
			counts[int(float64(l.At-d.Begun)*scale/width*columns)]++
		}
	}
	for _, n := range counts {
		d.Most = max(d.Most, n)
	}
	for i, n := range counts {
		if n > 0 {
			h := float64(n) / float64(d.Most) * grants
			d.Bars = append(d.Bars, bar{margin + float64(i)*width/columns, grants - h, width/columns - 0.5, h, fmt.Sprint(n, " grants")})
		}
	}
	rows := map[string]*lane{}
	var names []string
	at := func(name string) *lane {
		if rows[name] == nil {
			rows[name] = &lane{Name: name}
			names = append(names, name)
		}
		return rows[name]
	}
	open := map[string]int64{}
	put := func(name string, from, to int64, text string) {
		l := at(name)
		l.Bars = append(l.Bars, bar{X: x(from), W: max(x(to)-x(from), 2), Text: text})
	}
	for _, l := range lines {
		slot, _, _ := strings.Cut(l.Proc, ".")
		switch l.Op {
		case traffic.Begin:
			open[l.Text] = l.At
		case traffic.End:
			put(l.Text, open[l.Text], l.At, fmt.Sprintf("%s %v", l.Text, time.Duration(l.At-open[l.Text]).Round(time.Millisecond)))
		case traffic.Stop:
			open[l.Proc] = l.At
		case traffic.Resume:
			put(slot+" stopped", open[l.Proc], l.At, l.Proc+" stopped")
		case traffic.Crash:
			put(slot+" killed", l.At, l.At, l.Proc+" killed")
		}
	}
	slices.Sort(names)
	y := grants + 30
	for _, name := range names {
		rows[name].Y = y
		for i := range rows[name].Bars {
			rows[name].Bars[i].Y, rows[name].Bars[i].H = float64(y), row-4
		}
		d.Lanes = append(d.Lanes, *rows[name])
		y += row
	}
	for _, one := range v.Violations {
		if one.At != 0 {
			d.Marks = append(d.Marks, mark{x(one.At), one.String()})
		}
	}
	step := max(time.Duration(end-d.Begun)/10, 1).Round(time.Second)
	for t := time.Duration(0); step > 0 && t <= time.Duration(end-d.Begun); t += step {
		d.Ticks = append(d.Ticks, mark{x(d.Begun + int64(t)), t.String()})
	}
	d.Height = y + 20
	return d
}
