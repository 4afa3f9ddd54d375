package check

import (
	"time"

	"github.com/fencelock/fencelock/internal/history"
	"github.com/fencelock/fencelock/verify/traffic"
)

// events makes a history for the sweep. Beliefs reach as far as they are proven.
func events(all []*claim, lines []traffic.Line) []history.Event {
	var es []history.Event
	known := map[string]bool{}
	for _, c := range all {
		es = append(es, c.events()...)
		if c.held && !c.voided {
			known[c.Claim] = true
		}
	}
	ops := map[traffic.Op]history.Op{
		traffic.Crash: history.Crash, traffic.Stop: history.Pause, traffic.Resume: history.Resume,
		traffic.Wrote: history.Write,
	}
	for _, l := range lines {
		op, ok := ops[l.Op]
		// A set without a guard takes everything: see sets.
		if !ok || op == history.Write && (!known[l.Claim] || l.Token == 0) {
			continue
		}
		es = append(es, history.Event{
			At: time.Duration(l.At), Op: op, Process: l.Proc, Key: l.Key, Claim: l.Claim, Token: l.Token,
		})
	}
	return append(es, history.Event{At: time.Duration(last(lines)), Op: history.Look})
}

// event is something that happened to c, or to one handle of it.
func (c *claim) event(op history.Op, at int64, handle string) history.Event {
	return history.Event{
		At: time.Duration(at), Op: op, Process: c.Proc, Key: c.Key, Claim: c.Claim, Handle: handle,
		Kind: c.Kind, Weight: c.Weight, Size: c.Size, Token: c.done.Token,
	}
}

func (c *claim) events() []history.Event {
	es := []history.Event{c.event(history.Enter, c.At, "")}
	switch {
	case c.done.Op == traffic.Refused:
		return append(es, c.event(history.Refused, c.done.At, ""))
	case c.done.Op == "":
		return es // killed, or the history ends here
	case !c.held || c.voided:
		return append(es, c.event(history.Loss, c.done.At, ""))
	}
	es = append(es, c.beliefs()...)
	for _, h := range c.handles {
		if h.release.Op != "" {
			es = append(es, c.event(history.Release, h.release.At, h.name))
		}
	}
	if c.clean() && c.broken == 0 {
		return append(es, c.event(history.Left, c.over, ""))
	}
	es = append(es, c.event(history.Doubt, c.sure+1, ""))
	if c.lost != 0 {
		es = append(es, c.event(history.Loss, c.lost, ""))
	}
	return es
}

// beliefs are the moments in which a lease of c said that it was held.
func (c *claim) beliefs() (es []history.Event) {
	for i, h := range c.handles {
		if i > 0 && c.broken != 0 && h.held.At > c.broken {
			continue
		}
		e := c.event(history.Believe, h.held.At, h.name)
		e.Token = h.held.Token
		es = append(es, e)
	}
	for _, l := range c.looks {
		if l.At <= c.sure {
			es = append(es, c.event(history.Believe, l.At, l.Handle))
		}
	}
	return es
}

// maybes are the times in which a claim may hold its key of which nobody knows whether
// it does, because its store forgot something just then. Whoever waits behind it is not
// late.
func maybes(all []*claim, lines []traffic.Line) []history.Span {
	var spans []history.Span
	for _, c := range all {
		if c.voided {
			end := min(c.over, last(lines))
			spans = append(spans, history.Span{From: time.Duration(c.done.At), To: time.Duration(end), Key: c.Key})
		}
	}
	return spans
}

// outages are the times in which no progress is asked for. There is one fault at a time.
func outages(lines []traffic.Line) []history.Span {
	var spans []history.Span
	for _, l := range lines {
		switch {
		case l.Op == traffic.Begin && l.Outage:
			spans = append(spans, history.Span{From: time.Duration(l.At), To: time.Duration(last(lines))})
		case l.Op == traffic.End && l.Outage && len(spans) > 0:
			spans[len(spans)-1].To = time.Duration(l.At)
		}
	}
	return spans
}

// last is when a history ends.
func last(lines []traffic.Line) int64 {
	if len(lines) == 0 {
		return 0
	}
	return lines[len(lines)-1].At
}
