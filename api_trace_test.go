package fencelock_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/limit"
)

type traceKey struct{}

// traced is a context of work that others know as trace.
func traced(trace string) context.Context { return context.WithValue(bg, traceKey{}, trace) }

// traceOf is an Options.Trace.
func traceOf(ctx context.Context) string {
	s, _ := ctx.Value(traceKey{}).(string)
	return s
}

// Whoever finds the lock taken learns the trace of its holder, and sees no change in the note.
func TestTraceOfTheHolderReachesThoseWhoWait(t *testing.T) {
	inWorld(t, func(w *world) {
		var heard listener
		holder := w.client(&fencelock.Options{Owner: "holder", Trace: traceOf})
		c := w.client(&fencelock.Options{OnEvent: heard.on}) // it has no traces itself
		l := w.got(holder.Lock(traced("holder's"), "k", fencelock.Note("for people")))
		w.steps("enter")

		h := w.held(errOf(c.TryLock(bg, "k")))
		if h.Trace != "holder's" || h.Note != "for people" || strings.Contains(h.Error(), "holder's") {
			t.Errorf("refused with %+v: %v", h, h)
		}
		line := w.line(c, "k")
		if s := line.Claims[0]; s.Trace != "holder's" || s.Note != "for people" {
			t.Errorf("the line has %+v", s)
		}
		heard.take()
		k := w.later(c, "k")
		time.Sleep(time.Second)
		w.release(l)
		w.release(w.got(k.wait()))
		events := w.wantEvents(&heard, "waiting", "acquired", "released")
		for _, e := range events[:2] {
			if e.HeldBy == nil || e.HeldBy.Trace != "holder's" || e.HeldBy.Owner != "holder" {
				t.Errorf("the event has %+v", e.HeldBy)
			}
		}
		w.release(w.lock(c, "k"))
		if e := w.wantEvents(&heard, "acquired", "released")[0]; e.HeldBy != nil {
			t.Errorf("nobody was in the way, and the event has %+v", e.HeldBy)
		}
	})
}

// Goroutines of one Client share a claim, and each is known by its own trace to those who
// wait behind it in the process.
func TestTraceInsideOneProcess(t *testing.T) {
	inWorld(t, func(w *world) {
		var heard listener
		c := w.client(&fencelock.Options{Trace: traceOf, OnEvent: heard.on})
		lock := func(trace string) func() (*fencelock.Lease, error) {
			return func() (*fencelock.Lease, error) { return c.Lock(traced(trace), "k") }
		}
		l := w.got(lock("a")())
		b := w.begin(lock("b"))
		w.release(l)
		l = w.got(b.wait())
		d := w.begin(lock("d"))
		steps.Same(t, "the trace of the holder", w.held(errOf(c.TryLock(bg, "k"))).Trace, "b")
		w.release(l)
		w.release(w.got(d.wait()))
		var traces []string
		names, events := heard.take()
		for i, e := range events {
			if names[i] == "waiting" && e.HeldBy != nil {
				traces = append(traces, e.HeldBy.Trace)
			}
		}
		steps.Same(t, "those who waited were behind", strings.Join(traces, " "), "a b")
		steps.Same(t, "claims entered", len(w.store.entered()), 1)
		w.release(w.lock(c, "k")) // without a trace
	})
}

// No lock fails for its trace, and no note suffers.
func TestTraceThatCannotBeKeptIsLeftOut(t *testing.T) {
	inWorld(t, func(w *world) {
		var heard listener
		heard.only = []fencelock.EventType{fencelock.EventWarning}
		c := w.client(&fencelock.Options{Trace: traceOf, OnEvent: heard.on})
		long := strings.Repeat("x", 256)
		for _, test := range []struct {
			trace, note string
			kept        bool
		}{
			{long, "note", true},
			{long + "x", "note", false},
			{"a\x1fb", "note", true},
			{"a\x00b", "note", false},
			{long, strings.Repeat("n", limit.Note), true},
		} {
			for range 2 { // and the warning comes once
				l := w.got(c.Lock(traced(test.trace), "k", fencelock.Note(test.note)))
				if s := w.line(c, "k").Claims[0]; s.Note != test.note || (s.Trace == test.trace) != test.kept {
					t.Errorf("%.20q: the line has %+v", test.trace, s)
				}
				w.release(l)
			}
			if names, _ := heard.take(); len(names) > 1 || len(names) == 1 && test.kept || len(names) == 0 && test.trace == long+"x" {
				t.Errorf("%.20q: heard %q", test.trace, names)
			}
		}
	})
}
