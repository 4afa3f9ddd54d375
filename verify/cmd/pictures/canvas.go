package main

import (
	"encoding/xml"
	"fmt"
	"strings"
)

// A theme has the colours of light or dark pages. Each pair of ink and paper has a contrast of 4.5 or more.
type theme struct {
	name                     string
	paper, ink, muted, rule  string
	holds, waits, lost, band string // a lock that is held, a process that stands still, a refusal, a server
}

var themes = []theme{
	{"light", "#ffffff", "#1f2328", "#59636e", "#d1d9e0", "#1a7f37", "#8c959f", "#cf222e", "#f6f8fa"},
	{"dark", "#0d1117", "#f0f6fc", "#9198a1", "#3d444d", "#3fb950", "#767e88", "#ff7b72", "#161b22"},
}

// The fonts that a reader may have, in Latin and Chinese.
const (
	sans = "Inter, system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans CJK SC', 'PingFang SC', " +
		"'Microsoft YaHei', sans-serif"
	mono = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'Liberation Mono', monospace"
)

// canvas gathers the elements of one SVG.
type canvas struct {
	theme
	chinese       bool
	width, height int
	body          strings.Builder
}

// say returns the text in the language of the picture.
func (c *canvas) say(english, chinese string) string {
	if c.chinese {
		return chinese
	}
	return english
}

func (c *canvas) add(format string, args ...any) { fmt.Fprintf(&c.body, format+"\n", args...) }

// text writes at a point; anchor is start, middle or end.
func (c *canvas) text(x, y int, anchor, colour, text string) { c.sized(x, y, 16, anchor, colour, text) }

func (c *canvas) sized(x, y, size int, anchor, colour, text string) {
	c.add(`<text x="%d" y="%d" font-size="%d" text-anchor="%s" fill="%s">%s</text>`,
		x, y, size, anchor, colour, escape(text))
}

// onPaper writes over what is behind it.
func (c *canvas) onPaper(x, y, size int, colour, text string) {
	c.add(`<text x="%d" y="%d" font-size="%d" fill="%s" stroke="%s" stroke-width="6" paint-order="stroke">%s</text>`,
		x, y, size, colour, c.paper, escape(text))
}

func (c *canvas) bold(x, y int, anchor, colour, text string) {
	c.add(`<text x="%d" y="%d" font-size="16" font-weight="600" text-anchor="%s" fill="%s">%s</text>`,
		x, y, anchor, colour, escape(text))
}

func (c *canvas) box(x, y, w, h int, fill, stroke string) {
	c.add(`<rect x="%d" y="%d" width="%d" height="%d" rx="6" fill="%s" stroke="%s"/>`, x, y, w, h, fill, stroke)
}

// head draws the box at the top of a lifeline, and the line down to the end.
func (c *canvas) head(x, end int, name string) {
	c.add(`<line x1="%d" y1="44" x2="%d" y2="%d" stroke="%s" stroke-width="2"/>`, x, x, end, c.rule)
	c.box(x-68, 10, 136, 34, c.band, c.rule)
	c.bold(x, 33, "middle", c.ink, name)
}

// span draws a stretch of a lifeline: solid where work goes on, dashed where it stands still.
func (c *canvas) span(x, from, to int, colour string, still bool) {
	dash := ""
	if still {
		dash = ` stroke-dasharray="3 5"`
	}
	c.add(`<line x1="%d" y1="%d" x2="%d" y2="%d" stroke="%s" stroke-width="10"%s/>`, x, from, x, to, colour, dash)
}

// arrow draws a message, with its text above it.
func (c *canvas) arrow(x1, x2, y int, colour, text string) {
	c.line(x1, y, x2, y, colour)
	c.text((x1+x2)/2, y-8, "middle", colour, text)
}

// line draws a line with a head at its end.
func (c *canvas) line(x1, y1, x2, y2 int, colour string) {
	c.add(`<line x1="%d" y1="%d" x2="%d" y2="%d" stroke="%s" stroke-width="2" marker-end="url(#to-%s)"/>`,
		x1, y1, x2, y2, colour, strings.TrimPrefix(colour, "#"))
}

// moment draws a dashed line where something happens at one time.
func (c *canvas) moment(x1, y1, x2, y2 int) {
	c.add(`<line x1="%d" y1="%d" x2="%d" y2="%d" stroke="%s" stroke-width="1.5" stroke-dasharray="5 4"/>`,
		x1, y1, x2, y2, c.muted)
}

func (c *canvas) svg() string {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" `+
		`font-family="%s">`+"\n", c.width, c.height, c.width, c.height, sans)
	b.WriteString("<defs>\n")
	for _, colour := range []string{c.ink, c.muted, c.holds, c.lost} {
		fmt.Fprintf(&b, `<marker id="to-%s" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" `+
			`orient="auto"><path d="M0 0L10 5L0 10z" fill="%s"/></marker>`+"\n",
			strings.TrimPrefix(colour, "#"), colour)
	}
	fmt.Fprintf(&b, "</defs>\n<rect width=\"%d\" height=\"%d\" rx=\"8\" fill=\"%s\"/>\n", c.width, c.height, c.paper)
	return b.String() + c.body.String() + "</svg>\n"
}

func escape(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // a Builder takes everything
	return b.String()
}
