package fencelock

import (
	"fmt"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// traceSeparator stands between the note, the trace and the LockDelay in what a store keeps as
// the note. Notes cannot contain it (see Note).
const traceSeparator = "\x1f"

// maxTrace is the largest trace of a claim, in bytes.
const maxTrace = 256

// joinNote returns what a store keeps as the note: with the trace, and with the LockDelay for
// a client that breaks the claim.
func joinNote(note, trace string, delay time.Duration) string {
	if trace != "" || delay > 0 {
		note += traceSeparator + trace
	}
	if delay > 0 {
		note += traceSeparator + delay.String()
	}
	return note
}

// splitNote takes apart what a store keeps as the note.
func splitNote(stored string) (note, trace string, delay time.Duration) {
	note, rest, _ := strings.Cut(stored, traceSeparator)
	trace, text, _ := strings.Cut(rest, traceSeparator)
	delay, _ = time.ParseDuration(text)
	return note, trace, delay
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
		a.c.events.warnOnce(a.event(), fmt.Errorf("Options.Trace returned no text; the claims go without it"))
	case len(trace) > maxTrace:
		a.c.events.warnOnce(a.event(), fmt.Errorf("Options.Trace returned more than %d bytes; the claims go without it",
			maxTrace))
	case len(joinNote(a.note, trace, a.lockDelay)) > driver.MaxNote:
		a.c.events.warnOnce(a.event(), fmt.Errorf("the note leaves no room for the trace; at most %d bytes with both",
			driver.MaxNote))
	default:
		a.trace = trace
	}
}
