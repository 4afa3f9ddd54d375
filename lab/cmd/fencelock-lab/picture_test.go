package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/lab"
)

// A theme has the colours of light or dark pages, those of verify/cmd/pictures.
type theme struct {
	name                    string
	paper, ink, muted, rule string
	holds, waits, lost      string
}

var themes = []theme{
	{"light", "#ffffff", "#1f2328", "#59636e", "#d1d9e0", "#1a7f37", "#8c959f", "#cf222e"},
	{"dark", "#0d1117", "#f0f6fc", "#9198a1", "#3d444d", "#3fb950", "#767e88", "#ff7b72"},
}

// The sizes of a picture: it is never wider than a page, and readable on a telephone.
const (
	width  = 600
	left   = 44 // of the first step
	lane   = 34
	header = 34
)

// drawing draws one experiment: the scheme above, fencelock below. A column is a step of the
// table, and a line shows the beliefs of a client.
type drawing struct {
	theme
	strings.Builder
}

func draw(t theme, r lab.Result) string {
	d := &drawing{theme: t}
	y := d.run(r.Scheme, 8, "✗", d.lost)
	y = d.run(r.Ours, y+10, "✓", d.holds)
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" `+
		`font-family="Inter, system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif" font-size="18">`+"\n"+
		`<rect width="%d" height="%d" rx="8" fill="%s"/>`+"\n%s</svg>\n", width, y, width, y, width, y, d.paper, d.String())
}

func (d *drawing) add(format string, args ...any) { fmt.Fprintf(d, format+"\n", args...) }

func (d *drawing) text(x, y int, colour, text string) {
	d.add(`<text x="%d" y="%d" text-anchor="middle" fill="%s">%s</text>`, x, y, colour, text)
}

// run draws a run below y, and returns where it ends.
func (d *drawing) run(r lab.Run, y int, sign, colour string) int {
	step := (width - left - 12) / max(len(r.Steps), 6)
	actors := []string{"A", "B"}
	if slices.ContainsFunc(r.Steps, func(s lab.Step) bool { return s.Actor == "C" }) {
		actors = append(actors, "C")
	}
	end := y + header + lane*len(actors)
	d.add(`<text x="20" y="%d" text-anchor="middle" font-weight="700" fill="%s">%s</text>`, y+22, colour, sign)
	for i, a := range actors {
		d.text(20, y+header+lane*i+22, d.ink, a)
	}
	for i, beliefs := range r.Beliefs() {
		x, s := left+step*i, r.Steps[i]
		numbered, broke := d.muted, ""
		if len(s.Broke) > 0 {
			numbered, broke = d.lost, "⚠"
		}
		d.text(x+step/2, y+22, numbered, fmt.Sprint(i+1)+broke)
		d.add(`<path d="M%d %dV%d" stroke="%s"/>`, x, y+6, end, d.rule)
		for n, a := range actors {
			d.cell(x, y+header+lane*n, step, beliefs[a], s.Actor == a)
		}
	}
	return end + 8
}

// cell draws what a client believes at the end of a step, with a dot if the step is its own.
func (d *drawing) cell(x, y, step int, b lab.Belief, acts bool) {
	middle := y + 16
	switch b {
	case lab.Holds:
		d.add(`<path d="M%d %dh%d" stroke="%s" stroke-width="14"/>`, x, middle, step, d.holds)
	case lab.Clashes:
		d.add(`<path d="M%d %dh%d" stroke="%s" stroke-width="22"/>`, x, middle, step, d.lost)
	case lab.Stopped:
		d.add(`<path d="M%d %dh%d" stroke="%s" stroke-width="14" stroke-dasharray="3 6"/>`, x, middle, step, d.waits)
	case lab.Waits:
		d.add(`<path d="M%d %dh%d" stroke="%s" stroke-width="5" stroke-dasharray="6 5"/>`, x, middle, step, d.waits)
	}
	if acts {
		d.add(`<circle cx="%d" cy="%d" r="5" fill="%s" stroke="%s" stroke-width="2"/>`, x+step/2, middle, d.paper, d.ink)
	}
}

// pictureName is the file of a picture, as docs/lab.md names it.
func pictureName(number int, t theme) string {
	return fmt.Sprintf("images/lab/%02d-%s.svg", number, t.name)
}

// checkPictures compares the pictures of docs/lab.md with what was played, or writes them.
func checkPictures(t *testing.T, all []lab.Experiment, played []lab.Result) {
	t.Helper()
	for i, e := range all {
		for _, theme := range themes {
			name := filepath.Join("..", "..", "..", "docs", filepath.FromSlash(pictureName(e.Number, theme)))
			got := draw(theme, played[i])
			if *updateGolden {
				steps.Must(t, os.WriteFile(name, []byte(got), 0o600))
			}
			if want, err := os.ReadFile(name); err != nil || string(want) != got {
				t.Errorf("%s differs from what is played: %v", name, err)
			}
		}
	}
}
