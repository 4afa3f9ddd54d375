package drivertest

import (
	"context"
	"errors"
	"time"

	"github.com/fencelock/fencelock/driver"
)

var contextLaws = []law{
	{
		name: "EndedContextEndsCalls",
		why:  "a caller that has given up must get its goroutine back, and recognise its own context in the error",
		check: func(w *world) {
			cancelled, cancel := context.WithCancelCause(w.ctx)
			cancel(errors.New("the caller has its reasons"))
			late, stop := context.WithDeadline(w.ctx, time.Now().Add(-time.Second))
			defer stop()
			for _, ctx := range []context.Context{cancelled, late} {
				t := w.hold(w.a, w.claim(w.key()))
				w.cutShort(ctx, t)
				w.stillThere(t)
			}
		},
	},
	{
		name: "AwaitEndsWithItsContext",
		when: fair,
		why: "a cancelled Lock returns at once, not after the next look at the line; the claim stays in line " +
			"until it leaves",
		check: func(w *world) {
			key := w.key()
			w.hold(w.a, w.claim(key))
			t := w.wait(w.b, w.claim(key))
			for _, end := range []func() (context.Context, context.CancelFunc){
				func() (context.Context, context.CancelFunc) { return context.WithTimeout(w.ctx, settle) },
				func() (context.Context, context.CancelFunc) {
					ctx, cancel := context.WithCancel(w.ctx)
					stop := time.AfterFunc(settle, cancel)
					return ctx, func() { stop.Stop(); cancel() }
				},
			} {
				ctx, cancel := end()
				var err error
				i := clock(func() {
					for calls := 0; err == nil && calls < mostCalls; calls++ {
						_, err = w.b.Await(ctx, t)
					}
				})
				cancel()
				if ctx.Err() == nil || !errors.Is(err, ctx.Err()) {
					w.t.Errorf("Await answered %v when its context ended with %v", err, ctx.Err())
				}
				if took := i.answered.Sub(i.sent); took > aboutASecond {
					w.t.Errorf("Await took %v with a context that ended after %v", took, settle)
				}
				w.stillWaits(w.a, t)
			}
			if err := w.renewed(w.b, t); err != nil {
				w.t.Errorf("Renew after an Await that was cut short: %v", err)
			}
		},
	},
	{
		name: "OneContextEndsOneCall",
		why:  "calls are sent together: one caller that gives up must not take others with it",
		check: func(w *world) {
			const n = 40
			keys := make([]string, n)
			for i := range keys {
				keys[i] = w.key()
			}
			errs := make([]error, n)
			w.each(n, func(i int) {
				ctx, cancel := context.WithCancel(w.ctx)
				defer cancel()
				switch i % 4 {
				case 0: // cancelled before the call
					cancel()
				case 2: // at any moment of it
					go cancel()
				}
				c := w.claim(keys[i])
				t, err := w.a.Enter(ctx, c)
				if err != nil {
					t = driver.Ticket{Claim: c}
				}
				errs[i] = err
				w.mu.Lock()
				w.placed = append(w.placed, placed{w.a, t})
				w.mu.Unlock()
			})
			for i, err := range errs {
				if err != nil && (i%2 != 0 || !errors.Is(err, context.Canceled)) {
					w.t.Errorf("Enter %d, cancelled %v, answered %v", i, i%2 == 0, err)
				}
			}
		},
	},
}

// cutShort sends every call with a context that has ended.
func (w *world) cutShort(ctx context.Context, t driver.Ticket) {
	w.t.Helper()
	answer := func(what string, err error) {
		w.t.Helper()
		if !errors.Is(err, ctx.Err()) {
			w.t.Errorf("%s with a context that has ended answered %v; want %v", what, err, ctx.Err())
		}
	}
	i := clock(func() {
		c := w.claim(w.key())
		late, err := w.a.Enter(ctx, c)
		if err != nil {
			late = driver.Ticket{Claim: c}
		}
		w.placed = append(w.placed, placed{w.a, late})
		answer("Enter", err)
		_, err = w.a.Await(ctx, t)
		answer("Await", err)
		errs := w.a.Renew(ctx, []driver.Ticket{t, t})
		if len(errs) != 2 {
			w.t.Fatalf("Renew of 2 tickets answered %d errors", len(errs))
		}
		answer("Renew", errs[0])
		answer("Renew", errs[1])
		answer("Break", w.a.Break(ctx, w.key(), 1, "late"))
		answer("Leave", w.a.Leave(ctx, driver.Ticket{Claim: w.claim(w.key()), Token: 1}, driver.Exit{}))
		answer("Lines", first(w.a, ctx, w.prefix))
		if r, ok := w.a.(driver.LineReader); ok {
			_, err := r.Line(ctx, t.Key)
			answer("Line", err)
		}
	})
	if took := i.answered.Sub(i.sent); took > aboutASecond {
		w.t.Errorf("calls with a context that has ended took %v", took)
	}
}

// first is the first error that Lines yields.
func first(b driver.Backend, ctx context.Context, prefix string) error {
	for _, err := range b.Lines(ctx, prefix) {
		if err != nil {
			return err
		}
	}
	return nil
}

// stillThere must find the claim of t in line.
func (w *world) stillThere(t driver.Ticket) {
	w.t.Helper()
	if _, ok := w.standing(w.b, t); !ok {
		w.t.Errorf("a claim on %q is gone", t.Key)
	}
}
