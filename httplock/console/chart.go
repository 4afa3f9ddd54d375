package console

import (
	"slices"
	"strings"
	"time"

	"github.com/fencelock/fencelock/httplock/internal/watch"
)

// Sizes of a chart, in its own units.
const (
	chartWidth  = 300
	chartHeight = 60
	maxBars     = 30
	fewBars     = 10 // the width of a bar when there are fewer
)

// chart is a bar chart of durations, the oldest one first.
type chart struct {
	Title, Summary string
	Width, Height  int
	Bars           []bar
	Values         string        // the durations in words, for those who do not see the bars
	Top            time.Duration // what the highest bar stands for
	Highest        string        // the same in words
}

type bar struct {
	X, Y, Width, Height int
	Label               string
}

// chartsOf draws how long the last grants waited and how long they were held. events are
// those of a key, the last one first.
func chartsOf(l language, events []watch.Change) (waits, holds chart) {
	var waited, held []time.Duration
	for _, e := range events {
		if e.What == watch.Acquired && e.Waited >= 0 && len(waited) < maxBars {
			waited = append(waited, e.Waited)
		}
		if e.Held >= 0 && len(held) < maxBars {
			held = append(held, e.Held)
		}
	}
	slices.Reverse(waited)
	slices.Reverse(held)
	return draw(l, waited, "chart.waits", "chart.none"), draw(l, held, "chart.holds", "chart.none-ended")
}

func draw(l language, all []time.Duration, title, none string) chart {
	c := chart{Title: say(l, title), Width: chartWidth, Height: chartHeight}
	if len(all) == 0 {
		c.Summary = say(l, none)
		return c
	}
	c.Top = slices.Max(all)
	labels := make([]string, len(all))
	step := chartWidth / max(len(all), fewBars)
	for i, d := range all {
		labels[i] = span(l, d)
		height := 1 // a bar for what took no time shows that it is there
		if c.Top > 0 {
			height = max(int(chartHeight*d/c.Top), 1)
		}
		c.Bars = append(c.Bars, bar{
			X: i*step + 1, Y: chartHeight - height, Width: step - 2, Height: height, Label: labels[i],
		})
	}
	c.Values, c.Summary, c.Highest = strings.Join(labels, ", "), summary(l, all, c.Top), span(l, c.Top)
	return c
}

func summary(l language, all []time.Duration, longest time.Duration) string {
	if len(all) == 1 {
		return say(l, "chart.summary.1", 1, span(l, longest))
	}
	sorted := slices.Sorted(slices.Values(all))
	return say(l, "chart.summary.n", len(all), span(l, sorted[len(sorted)/2]), span(l, longest))
}
