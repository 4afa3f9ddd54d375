package drivertest

import (
	"sync"

	"github.com/fencelock/fencelock/driver"
)

var breakLaws = []law{
	{
		name: "BreakEndsTheHolder",
		why: "an operator frees a lock whose holder hangs: the lock passes on, and the holder learns why " +
			"whatever it asks",
		check: func(w *world) {
			key := w.key()
			t := w.hold(w.a, w.claim(key))
			w.broken(w.b, t, "it hangs: ask 'ops' \"now\"")
			w.hold(w.b, w.claim(key))
		},
	},
	{
		name: "BreakLetsTheNextIn",
		when: fair,
		why:  "the next in line is granted by the break itself",
		check: func(w *world) {
			key := w.key()
			t := w.hold(w.a, w.claim(key))
			next := w.wait(w.b, w.claim(key))
			w.broken(w.b, t, "enough")
			w.granted(w.b, next)
		},
	},
	{
		name: "BreakOfAWaiter",
		when: fair,
		why:  "a waiting writer can be ended too, and the readers behind it go on",
		check: func(w *world) {
			key := w.key()
			w.hold(w.a, w.reader(key))
			writer := w.wait(w.a, w.claim(key))
			behind := w.wait(w.b, w.reader(key))
			w.broken(w.a, writer, "no writing today")
			w.granted(w.b, behind)
		},
	},
	{
		name: "BreakMatchesTheWholeSpan",
		why: "people see the token of the goroutine that holds now, anywhere in the span; a token outside " +
			"belongs to nobody",
		check: func(w *world) {
			for _, at := range []int64{0, 1, 500, 999} {
				c := w.claim(w.key())
				c.Span = 1000
				t := w.hold(w.a, c)
				for _, miss := range []int64{t.Token - 1, t.Token + 1000, 1} {
					w.gone("Break of a token that nobody has", w.b.Break(w.ctx, c.Key, miss, "wrong"))
				}
				w.stillHolds(w.b, t)
				if err := w.renewed(w.a, t); err != nil {
					w.t.Errorf("Renew after a Break that missed: %v", err)
				}
				if err := w.b.Break(w.ctx, c.Key, t.Token+at, "right"); err != nil {
					w.t.Errorf("Break of token %d, %d into the span: %v", t.Token+at, at, err)
				}
				w.empty(w.b, c.Key)
			}
		},
	},
	{
		name: "BreakFindsOneOfMany",
		when: fair,
		why:  "only the claim with that token ends: the others keep what they have",
		check: func(w *world) {
			key := w.key()
			r1, r2, r3 := w.hold(w.a, w.reader(key)), w.hold(w.a, w.reader(key)), w.hold(w.b, w.reader(key))
			if err := w.b.Break(w.ctx, key, r2.Token, "the middle one"); err != nil {
				w.t.Fatalf("Break: %v", err)
			}
			w.stillHolds(w.b, r1)
			w.stillHolds(w.b, r3)
			w.gone("Renew of the broken claim", w.renewed(w.a, r2))
		},
	},
	{
		name: "BreakOfNobody",
		why:  "a break that comes too late, or for the wrong key, says so and changes nothing",
		check: func(w *world) {
			w.gone("Break on a key that was never used", w.a.Break(w.ctx, w.key(), 1, "nobody"))
			t := w.hold(w.a, w.claim(w.key()))
			w.gone("Break on another key", w.a.Break(w.ctx, w.key(), t.Token, "wrong key"))
			w.stillHolds(w.b, t)
			w.leave(w.a, t, driver.Exit{})
			g := w.gone("Break of a claim that left", w.a.Break(w.ctx, t.Key, t.Token, "late"))
			if g.Broken {
				w.t.Errorf("a Break that found nobody says that it broke somebody")
			}
			_, err := w.try(w.a, w.claim(t.Key))
			if err != nil {
				w.t.Errorf("Enter after a Break that found nobody: %v", err)
			}
		},
	},
	{
		name: "BreakOfAnExpiredClaimFindsNobody",
		when: func(i driver.Info) bool { return i.Lease == driver.PerClaim },
		why:  "an expired claim is not in line, though its row may still be there",
		check: func(w *world) {
			w.timed(func(r *round) {
				var t driver.Ticket
				i := clock(func() { t = r.hold(r.a, r.short(r.key())) })
				r.until(r.over(i, t.TTL))
				r.gone("Break of an expired claim", r.b.Break(r.ctx, t.Key, t.Token, "late"))
			})
		},
	},
	{
		name: "BreakKeepsTheIdOut",
		why:  "a client that was ended and repeats its Enter must not come back as if nothing had been said",
		check: func(w *world) {
			w.timed(func(r *round) {
				c := r.short(r.key())
				var t driver.Ticket
				i := clock(func() { t = r.hold(r.a, c) })
				if err := r.b.Break(r.ctx, c.Key, t.Token, "out"); err != nil {
					panic(void{"Break: " + err.Error()})
				}
				r.until(i.sent.Add(t.Left * 8 / 10))
				var err error
				late := clock(func() { _, err = r.try(r.a, c) })
				r.inTime("the repeated Enter", late.answered, i.sent.Add(t.Left))
				if g := r.gone("Enter of a broken claim", err); !g.Broken || g.Reason != "out" {
					r.t.Errorf("Enter of a broken claim answered %+v; want the reason", g)
				}
			})
		},
	},
	{
		name: "BreakReasonIsText",
		why:  "the reason is written by a person, in any language, and is read by another",
		check: func(w *world) {
			for _, reason := range []string{"", "維護中 ☂ — l'arrêt\n\t\"quoted\" {braces} %s 100% $1", fill("é", driver.MaxNote)} {
				w.broken(w.b, w.hold(w.a, w.claim(w.key())), reason)
			}
		},
	},
	{
		name: "AlarmTellsTheHolder",
		can:  hasAlarm,
		why:  "a holder that hears of a break at once stops at once, not at its next renewal",
		check: func(w *world) {
			alarm := w.a.(driver.Alarm)
			var mu sync.Mutex
			heard := map[string]driver.ErrGone{}
			stop := alarm.Alarm(func(id string, gone driver.ErrGone) {
				mu.Lock()
				defer mu.Unlock()
				heard[id] = gone
			})
			defer stop()
			// One message may be lost, but not one after the other.
			for range maxRounds {
				t := w.hold(w.a, w.claim(w.key()))
				if err := w.b.Break(w.ctx, t.Key, t.Token, "listen"); err != nil {
					w.t.Fatalf("Break: %v", err)
				}
				told := func() (driver.ErrGone, bool) {
					mu.Lock()
					defer mu.Unlock()
					g, ok := heard[t.ID]
					return g, ok
				}
				if w.promptly(func() bool { _, ok := told(); return ok }) {
					if g, _ := told(); !g.Broken || g.Reason != "listen" {
						w.t.Errorf("the alarm said %+v; want the reason", g)
					}
					return
				}
			}
			w.t.Errorf("%d claims were broken and the alarm never rang", maxRounds)
		},
	},
}

// broken ends the claim of t, which w.a holds, and asks everything about it.
func (w *world) broken(b driver.Backend, t driver.Ticket, reason string) {
	w.t.Helper()
	if err := b.Break(w.ctx, t.Key, t.Token, reason); err != nil {
		w.t.Fatalf("Break: %v", err)
	}
	said := func(what string, err error) {
		w.t.Helper()
		if g := w.gone(what+" of a broken claim", err); !g.Broken || g.Reason != reason {
			w.t.Errorf("%s of a broken claim answered %+v; want the reason %q", what, g, reason)
		}
	}
	said("Renew", w.renewed(w.a, t))
	_, err := w.a.Await(w.ctx, t)
	said("Await", err)
	said("Leave", w.a.Leave(w.ctx, t, driver.Exit{Mark: "not written"}))
	_, err = w.try(w.a, t.Claim)
	said("Enter", err)
	if _, ok := w.standing(b, t); ok {
		w.t.Errorf("a broken claim is still in line")
	}
	w.gone("the second Break", b.Break(w.ctx, t.Key, t.Token, "again"))
}
