package drivertest

import (
	"time"

	"github.com/fencelock/fencelock/driver"
)

var lingerLaws = []law{
	{
		name: "LingerKeepsThePlaceTaken",
		when: lingers,
		why: "MinHold releases at once and yet keeps the key taken: a clock that runs fast on another machine " +
			"must not start the same job twice",
		check: func(w *world) {
			w.timed(func(r *round) {
				key := r.key()
				t := r.hold(r.a, r.claim(key))
				i := clock(func() { r.leave(r.a, t, driver.Exit{Linger: r.lease}) })
				r.until(i.sent.Add(r.lease * 8 / 10))
				var err error
				early := clock(func() { _, err = r.try(r.b, noWait(r.claim(key))) })
				r.inTime("the early try", early.answered, i.sent.Add(r.lease))
				if err == nil {
					r.t.Errorf("the key was free %v after a Leave that lingers for %v", early.answered.Sub(i.sent), r.lease)
				}
				r.until(r.over(i, r.lease))
				r.empty(r.b, key)
				r.hold(r.b, noWait(r.claim(key)))
			})
		},
	},
	{
		name: "LingerReplacesTheLease",
		when: lingers,
		why: "lingering is counted from Leave, whatever was left of the lease: a long lease must not keep the " +
			"key taken for longer",
		check: func(w *world) {
			w.timed(func(r *round) {
				t := r.hold(r.a, r.claim(r.key())) // ten minutes
				i := clock(func() { r.leave(r.a, t, driver.Exit{Linger: r.lease}) })
				r.until(r.over(i, r.lease))
				r.empty(r.b, t.Key)
			})
		},
	},
	{
		name: "LingerOutlastsTheLease",
		when: lingers,
		why:  "the key stays taken for as long as was asked for, though the lease would have ended before",
		check: func(w *world) {
			w.timed(func(r *round) {
				var t driver.Ticket
				i := clock(func() { t = r.hold(r.a, r.short(r.key())) })
				left := clock(func() {
					if err := r.a.Leave(r.ctx, t, driver.Exit{Linger: min(longLease, r.info.MaxTTL)}); err != nil {
						panic(void{"Leave: " + err.Error()})
					}
				})
				r.inTime("Leave", left.answered, i.sent.Add(t.Left))
				r.until(r.over(left, t.TTL))
				r.refused(r.b, r.claim(t.Key))
			})
		},
	},
	{
		name: "LingeringClaimHasLeft",
		when: lingers,
		why:  "its holder is done with it: nothing may bring it back, prolong it or end it but an operator",
		check: func(w *world) {
			w.timed(func(r *round) {
				key := r.key()
				c := r.claim(key)
				t := r.hold(r.a, c)
				i := clock(func() { r.leave(r.a, t, driver.Exit{Linger: r.lease}) })
				r.gone("Renew of a claim that lingers", r.renewed(r.a, t))
				_, err := r.a.Await(r.ctx, t)
				r.gone("Await of a claim that lingers", err)
				r.gone("Leave of a claim that lingers", r.a.Leave(r.ctx, t, driver.Exit{}))
				_, err = r.try(r.a, c)
				answered := time.Now()
				r.inTime("the Enter", answered, i.sent.Add(r.lease))
				r.gone("Enter of a claim that lingers", err)
				if _, ok := r.standing(r.b, t); !ok {
					r.inTime("the look", time.Now(), i.sent.Add(r.lease))
					r.t.Errorf("a claim that lingers for %v is not in line", r.lease)
				}
				r.until(r.over(i, r.lease))
				r.empty(r.b, key)
			})
		},
	},
	{
		name: "LingerEndsByItself",
		when: both(lingers, fair),
		why:  "those in line behind a claim that lingers are granted when it is over, though nobody calls",
		check: func(w *world) {
			w.timed(func(r *round) {
				key := r.key()
				t := r.hold(r.a, r.claim(key))
				next := r.wait(r.b, r.claim(key))
				i := clock(func() { r.leave(r.a, t, driver.Exit{Linger: r.lease}) })
				r.granted(r.b, next)
				if early := time.Until(i.sent.Add(r.lease)); early > 0 {
					r.t.Errorf("the next in line was granted %v before the lingering was over", early)
				}
			})
		},
	},
	{
		name: "LingerIsSeen",
		when: lingers,
		why:  "people must see that nobody works under a lock that is taken, and until when",
		check: func(w *world) {
			t := w.hold(w.a, w.claim(w.key()))
			if s, _ := w.standing(w.b, t); s.Lingering {
				w.t.Errorf("a claim that is held is shown as lingering")
			}
			linger := min(longLease, w.info.MaxTTL)
			w.leave(w.a, t, driver.Exit{Linger: linger})
			s, ok := w.standing(w.b, t)
			if !ok || !s.Lingering || !s.Granted {
				w.t.Errorf("a claim that lingers is shown as %+v, found %v; want granted and lingering", s, ok)
			}
			if s.Left <= 0 || s.Left > linger+time.Second {
				w.t.Errorf("a claim that lingers for %v is shown with %v left", linger, s.Left)
			}
		},
	},
	{
		name: "LingeringClaimCanBeBroken",
		when: lingers,
		why:  "an operator must be able to free a key before its time",
		check: func(w *world) {
			t := w.hold(w.a, w.claim(w.key()))
			w.leave(w.a, t, driver.Exit{Linger: min(longLease, w.info.MaxTTL)})
			if err := w.b.Break(w.ctx, t.Key, t.Token, "now"); err != nil {
				w.t.Fatalf("Break of a claim that lingers: %v", err)
			}
			w.hold(w.b, noWait(w.claim(t.Key)))
		},
	},
	{
		name: "LingerWithMark",
		when: both(lingers, marks),
		why:  "one Leave may do both, and its repeat must not count as a failure nor start the lingering again",
		check: func(w *world) {
			w.timed(func(r *round) {
				key := r.key()
				t := r.hold(r.a, r.claim(key))
				e := driver.Exit{Mark: "done", Linger: r.lease}
				i := clock(func() { r.leave(r.a, t, e) })
				e.Linger = min(longLease, r.info.MaxTTL)
				r.leave(r.a, t, e)
				r.until(r.over(i, r.lease))
				r.next(key, "done")
			})
		},
	},
}
