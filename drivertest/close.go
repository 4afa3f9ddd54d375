package drivertest

import (
	"context"
	"errors"
	"time"

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
	//verify:fault The API, on all stores | Close with locks held, and during Lock
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
	//verify:fault The API, on all stores | Close with locks held, and during Lock
	{"CloseEndsAwait", all(fair, closes), func(w *world, key string) {
		w.a.holds(w.claim(key))
		view := w.view()
		t := view.waits(w.claim(key))
		err := w.awaiting(func() {
			w.soon("Close while somebody waited", func() { w.must("Close", view.Close()) })
		}, t)
		w.answered("Await when its backend was closed, or the next one", err, driver.ErrClosed)
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

var contextLaws = []law{
	//verify:fault The API, on all stores | the context ends at each step
	{"EndedContextEndsCalls", nil, func(w *world, _ string) {
		cancelled, cancel := context.WithCancelCause(w.ctx)
		cancel(errors.New("the caller has its reasons"))
		late, stop := context.WithDeadline(w.ctx, time.Now().Add(-time.Second))
		defer stop()
		for _, ctx := range []context.Context{cancelled, late} {
			t := w.a.holds(w.claim(w.key()))
			w.a.allAnswer(ctx, ctx.Err(), t, w.a.with(driver.Ticket{Claim: w.claim(w.key()), Token: 1}))
			t.stillThere()
		}
	}, "a caller that has given up must get its goroutine back, and recognise its own context in the error"},
	//verify:fault The API, on all stores | the context ends at each step
	{"AwaitEndsWithItsContext", fair, func(w *world, key string) {
		w.a.holds(w.claim(key))
		t := w.b.waits(w.claim(key))
		for _, cancelled := range []bool{false, true} {
			ctx, cancel := context.WithTimeout(w.ctx, settle)
			if cancelled {
				ctx, cancel = context.WithCancel(w.ctx)
				time.AfterFunc(settle, cancel)
			}
			var err error
			w.soon("Await with a context that ended", func() { _, err = t.awaitGrant(ctx) })
			end, timed := ctx.Deadline()
			w.wrongIf(ctx.Err() == nil && !(timed && time.Now().After(end)),
				"Await returned %v before its context ended", err)
			<-ctx.Done() // its timer may be later than its deadline
			cancel()
			w.answered("Await whose context ended", err, ctx.Err())
			t.stillWaits()
		}
		t.renews()
	}, "a cancelled Lock returns at once, not after the next look; its claim stays in line until it leaves"},
	{"OneContextEndsOneCall", nil, func(w *world, _ string) {
		const n = 40
		w.each(n, func(i int) {
			ctx, cancel := context.WithCancel(w.ctx)
			defer cancel()
			switch i % 4 {
			case 0: // cancelled before the call
				cancel()
			case 2: // at any moment of it
				go cancel()
			}
			_, err := w.a.send(ctx, w.claim(w.key()), w.a.Enter)
			w.wrongIf(err != nil && (i%2 != 0 || !errors.Is(err, context.Canceled)),
				"Enter %d, cancelled %v, answered %v", i, i%2 == 0, err)
		})
	}, "calls are sent together: one caller that gives up must not take others with it"},
}
