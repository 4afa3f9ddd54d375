package fencelock

import (
	"fmt"
	"strings"

	"github.com/fencelock/fencelock/driver"
)

// traceSeparator stands between the note and the trace in what a store keeps as the note.
// Notes cannot contain it (see Note).
const traceSeparator = "\x1f"

// maxTrace is how many bytes of Options.Trace a claim carries at most.
const maxTrace = 256

// joinTrace returns a note with a trace as the store keeps it.
func joinTrace(note, trace string) string {
	if trace == "" {
		return note
	}
	return note + traceSeparator + trace
}

// splitTrace takes apart what a store keeps as the note.
func splitTrace(stored string) (note, trace string) {
	i := strings.LastIndex(stored, traceSeparator)
	if i < 0 {
		return stored, ""
	}
	return stored[:i], stored[i+len(traceSeparator):]
}

// readTrace asks Options.Trace for the trace of the call. A trace that cannot be kept is left
// out, because no lock fails for its trace.
func (a *acquisition) readTrace() {
	f := a.c.options.Trace
	if f == nil {
		return
	}
	trace := f(a.ctx)
	switch {
	case !isText(trace) || strings.Contains(trace, traceSeparator):
		a.c.hooks.warnOnce(a.event(), fmt.Errorf("Options.Trace returned no text; the claims go without it"))
	case len(trace) > maxTrace:
		a.c.hooks.warnOnce(a.event(), fmt.Errorf("Options.Trace returned more than %d bytes; the claims go without it",
			maxTrace))
	case len(joinTrace(a.note, trace)) > driver.MaxNote:
		a.c.hooks.warnOnce(a.event(), fmt.Errorf("the note leaves no room for the trace; at most %d bytes with both",
			driver.MaxNote))
	default:
		a.trace = trace
	}
}
