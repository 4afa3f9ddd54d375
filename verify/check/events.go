package check

import (
	"time"

	"github.com/fencelock/fencelock/internal/history"
	"github.com/fencelock/fencelock/verify/traffic"
)

// events makes a history for the sweep. Beliefs reach as far as they are proven.
func events(all []*claim, lines []traffic.Line) []history.Event {
	var es []history.Event
	known := map[string]*claim{}
	for _, c := range all {
		es = append(es, c.events()...)
		if c.held && !c.voided {
			known[c.name] = c
		}
	}
	for _, l := range lines {
		e := history.Event{At: time.Duration(l.At), Process: l.Proc, Key: l.Key, Claim: l.Claim, Token: l.Token}
		switch l.Op {
		case traffic.Crash:
			e.Op = history.Crash
		case traffic.Stop:
			e.Op = history.Pause
		case traffic.Resume:
			e.Op = history.Resume
		case traffic.Wrote:
			// A set without a guard takes everything: see sets.
			c := known[l.Claim]
			if c == nil || l.Token == 0 {
				continue
			}
			e.Op = history.Write
		default:
			continue
		}
		es = append(es, e)
	}
	if n := len(lines); n > 0 {
		es = append(es, history.Event{At: time.Duration(lines[n-1].At), Op: history.Look})
	}
	return es
}

// event is something that happened to c.
func (c *claim) event(op history.Op, at int64) history.Event {
	e := history.Event{
		At: time.Duration(at), Op: op, Process: c.proc, Key: c.key, Claim: c.name,
		Weight: c.weight, Size: c.size, Token: c.done.Token,
	}
	switch c.kind {
	case traffic.Shared:
		e.Kind = history.Shared
	case traffic.Permit:
		e.Kind = history.Permit
	}
	return e
}

// handleEvent is something that happened to one handle of c.
func (c *claim) handleEvent(op history.Op, at int64, handle string) history.Event {
	e := c.event(op, at)
	e.Handle = handle
	return e
}

func (c *claim) events() []history.Event {
	es := []history.Event{c.event(history.Enter, c.call.At)}
	switch {
	case c.done.Op == traffic.Refused:
		return append(es, c.event(history.Refused, c.done.At))
	case c.done.Op == "":
		return es // killed, or the history ends here
	case !c.held || c.voided:
		return append(es, c.event(history.Loss, c.done.At))
	}
	es = append(es, c.beliefs()...)
	for _, h := range c.handles {
		if h.release.Op != "" {
			es = append(es, c.handleEvent(history.Release, h.release.At, h.name))
		}
	}
	if c.clean() && c.broken == 0 {
		return append(es, c.event(history.Left, c.over))
	}
	es = append(es, c.event(history.Doubt, c.sure+1))
	if c.lost != 0 {
		es = append(es, c.event(history.Loss, c.lost))
	}
	return es
}

// beliefs are the moments in which a lease of c said that it was held.
func (c *claim) beliefs() (es []history.Event) {
	for i, h := range c.handles {
		if i > 0 && c.broken != 0 && h.held.At > c.broken {
			continue
		}
		e := c.handleEvent(history.Believe, h.held.At, h.name)
		e.Token = h.held.Token
		es = append(es, e)
	}
	for _, l := range c.looks {
		if l.At <= c.sure {
			es = append(es, c.handleEvent(history.Believe, l.At, l.Handle))
		}
	}
	return es
}

// maybes are the times in which a claim may hold its key of which nobody knows whether
// it does, because its store forgot something just then. Whoever waits behind it is not
// late.
func maybes(all []*claim, lines []traffic.Line) []history.Span {
	var spans []history.Span
	if len(lines) == 0 {
		return nil
	}
	for _, c := range all {
		if c.voided {
			end := min(c.over, lines[len(lines)-1].At)
			spans = append(spans, history.Span{From: time.Duration(c.done.At), To: time.Duration(end), Key: c.key})
		}
	}
	return spans
}

// outages are the times in which no progress is asked for.
func outages(lines []traffic.Line) []history.Span {
	var spans []history.Span
	begun := map[string]int64{}
	for _, l := range lines {
		switch {
		case l.Op == traffic.Begin && l.Outage:
			begun[l.Text] = l.At
		case l.Op == traffic.End && l.Outage:
			spans = append(spans, history.Span{From: time.Duration(begun[l.Text]), To: time.Duration(l.At)})
			delete(begun, l.Text)
		}
	}
	if n := len(lines); n > 0 {
		for _, from := range begun {
			spans = append(spans, history.Span{From: time.Duration(from), To: time.Duration(lines[n-1].At)})
		}
	}
	return spans
}
