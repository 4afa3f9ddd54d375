package drivertest

import (
	"errors"
	"time"

	"github.com/fencelock/fencelock/driver"
)

var closeLaws = []law{
	{
		name: "CloseMayBeCalledTwice",
		why:  "a Client closes its backend, and so does the deferred Close of whoever opened it",
		check: func(w *world) {
			view := w.open()
			w.leave(view, w.hold(view, w.claim(w.key())), driver.Exit{})
			for range 2 {
				if err := view.Close(); err != nil {
					w.t.Errorf("Close: %v", err)
				}
			}
		},
	},
	{
		name: "ClosedBackendSaysSo",
		with: func(c config) bool { return !c.serving },
		why: "a call after Close is a mistake in the program: it must hear so, not wait for a goroutine that " +
			"has ended",
		check: func(w *world) {
			view := w.open()
			t := w.hold(view, w.claim(w.key()))
			if err := view.Close(); err != nil {
				w.t.Fatalf("Close: %v", err)
			}
			closed := func(what string, err error) {
				w.t.Helper()
				if !errors.Is(err, driver.ErrClosed) {
					w.t.Errorf("%s after Close answered %v; want ErrClosed", what, err)
				}
			}
			i := clock(func() {
				_, err := w.try(view, w.claim(w.key()))
				closed("Enter", err)
				_, err = view.Await(w.ctx, t)
				closed("Await", err)
				errs := view.Renew(w.ctx, []driver.Ticket{t})
				if len(errs) != 1 {
					w.t.Fatalf("Renew of one ticket answered %d errors", len(errs))
				}
				closed("Renew", errs[0])
				closed("Leave", view.Leave(w.ctx, t, driver.Exit{}))
				closed("Break", view.Break(w.ctx, t.Key, t.Token, "late"))
				closed("Lines", first(view, w.ctx, w.prefix))
				if r, ok := view.(driver.LineReader); ok {
					_, err := r.Line(w.ctx, t.Key)
					closed("Line", err)
				}
			})
			if took := i.answered.Sub(i.sent); took > aboutASecond {
				w.t.Errorf("calls after Close took %v", took)
			}
			if view.Info() != w.info {
				w.t.Errorf("Info changed with Close: %+v, before %+v", view.Info(), w.info)
			}
		},
	},
	{
		name: "CloseLeavesClaimsAlone",
		why:  "the core decides when a claim leaves: a holder may still be writing when its backend is closed",
		check: func(w *world) {
			view := w.open()
			t := w.hold(view, w.claim(w.key()))
			if err := view.Close(); err != nil {
				w.t.Fatalf("Close: %v", err)
			}
			w.stillHolds(w.a, t)
			w.refused(w.b, w.claim(t.Key))
		},
	},
	{
		name: "CloseOfOneViewIsNotClosingOthers",
		why: "two Clients of one process may share the user's own client: one that is closed must not take the " +
			"other with it",
		check: func(w *world) {
			view := w.open()
			w.hold(view, w.claim(w.key()))
			if err := view.Close(); err != nil {
				w.t.Fatalf("Close: %v", err)
			}
			w.leave(w.a, w.hold(w.a, w.claim(w.key())), driver.Exit{})
		},
	},
	{
		name: "CloseEndsAwait",
		when: fair,
		with: func(c config) bool { return !c.serving },
		why:  "a goroutine that waits in line when the program closes must be able to end",
		check: func(w *world) {
			key := w.key()
			w.hold(w.a, w.claim(key))
			view := w.open()
			t := w.wait(view, w.claim(key))
			var took time.Duration
			err := w.awaitGone(view, t, func() {
				start := time.Now()
				if err := view.Close(); err != nil {
					w.t.Errorf("Close: %v", err)
				}
				took = time.Since(start)
			})
			if !errors.Is(err, driver.ErrClosed) {
				w.t.Errorf("Await answered %v when its backend was closed; want ErrClosed, at the latest from the next call", err)
			}
			if took > aboutASecond {
				w.t.Errorf("Close took %v while somebody waited", took)
			}
		},
	},
	{
		name: "CloseThatDoesNothingDoesNothing",
		with: func(c config) bool { return c.serving },
		why:  "other Clients may be using the same value: it is the store itself",
		check: func(w *world) {
			t := w.hold(w.a, w.claim(w.key()))
			if err := w.a.Close(); err != nil {
				w.t.Fatalf("Close: %v", err)
			}
			if err := w.renewed(w.a, t); err != nil {
				w.t.Errorf("Renew after Close: %v", err)
			}
			w.refused(w.a, w.claim(t.Key))
			w.leave(w.a, t, driver.Exit{})
			w.hold(w.a, w.claim(t.Key))
		},
	},
}
