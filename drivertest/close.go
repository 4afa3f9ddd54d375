package drivertest

import (
	"errors"

	"github.com/fencelock/fencelock/driver"
)

var closeLaws = []law{
	{"CloseMayBeCalledTwice", nil, func(w *world, key string) {
		view := w.view()
		view.holds(w.claim(key)).leaves()
		for range 2 {
			w.must("Close", view.Close())
		}
	}, "a Client closes its backend, and so does the deferred Close of whoever opened it"},
	{"ClosedBackendSaysSo", closes, func(w *world, key string) {
		view := w.view()
		t := view.holds(w.claim(key))
		w.must("Close", view.Close())
		view.allAnswer(w.ctx, driver.ErrClosed, t, t)
		same(w, "Info after Close", view.Info(), w.info)
	}, "a call after Close is a mistake in the program: it must hear so, not wait for a goroutine that has ended"},
	{"CloseLeavesClaimsAlone", nil, func(w *world, key string) {
		view := w.view()
		t := view.holds(w.claim(key))
		w.must("Close", view.Close())
		t.stillHolds()
		w.b.refused(w.claim(t.Key))
	}, "the core decides when a claim leaves: a holder may still be writing when its backend is closed"},
	{"CloseOfOneViewIsNotClosingOthers", nil, func(w *world, key string) {
		view := w.view()
		view.holds(w.claim(key))
		w.must("Close", view.Close())
		w.a.holds(w.claim(w.key())).leaves()
	}, "two Clients of one process may share a connection pool: closing one must not close the other"},
	{"CloseEndsAwait", all(fair, closes), func(w *world, key string) {
		w.a.holds(w.claim(key))
		view := w.view()
		t := view.waits(w.claim(key))
		err := w.awaiting(func() {
			w.soon("Close while somebody waited", func() { w.must("Close", view.Close()) })
		}, t)
		w.wrongIf(!errors.Is(err, driver.ErrClosed),
			"Await answered %v when its backend was closed; want ErrClosed, at the latest from the next call", err)
	}, "a goroutine that waits in line when the program closes must be able to end"},
	{"CloseThatDoesNothingDoesNothing", serves, func(w *world, key string) {
		t := w.a.holds(w.claim(key))
		w.must("Close", w.a.Close())
		t.renews()
		w.a.refused(w.claim(t.Key))
		t.leaves()
		w.a.holds(w.claim(t.Key))
	}, "other Clients may be using the same value: it is the store itself"},
}
