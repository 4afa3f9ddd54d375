package drivertest

import (
	"time"

	"github.com/fencelock/fencelock/driver"
)

var lingerLaws = []law{
	{"LingerKeepsThePlaceTaken", lingers, timed(func(r *round, key string) {
		t := r.a.holds(r.claim(key))
		t.lingers(r.lease)
		r.until(t.sent.Add(r.lease * 8 / 10))
		early, err := r.b.try(noWait(r.claim(key)))
		r.inTime("the early try", early.answered, t.ends())
		r.wrongIf(err == nil,
			"the key was free %v after a Leave that lingers for %v", early.answered.Sub(t.sent), r.lease)
		t.expires()
		r.b.empty(key)
		r.b.holds(noWait(r.claim(key)))
	}), "MinHold keeps the key taken after the release: another machine's fast clock must not start a job twice"},
	{"LingerReplacesTheLease", lingers, timed(func(r *round, key string) {
		t := r.a.holds(r.claim(key)) // ten minutes
		t.lingers(r.lease)
		t.expires()
		r.b.empty(t.Key)
	}), "lingering counts from Leave: a long lease must not keep the key taken for longer"},
	{"LingerOutlastsTheLease", lingers, timed(func(r *round, key string) {
		t := r.a.holds(r.short(key))
		r.voidIf("Leave", t.leave(driver.Exit{Linger: r.longest()}))
		left := time.Now()
		r.inTime("Leave", left, t.ends())
		r.until(left.Add(t.TTL + r.conf.lag))
		r.b.refused(r.claim(t.Key))
	}), "the key stays taken for as long as was asked for, though the lease would have ended before"},
	{"LingeringClaimHasLeft", lingers, timed(func(r *round, key string) {
		t := r.a.holds(r.claim(key))
		t.lingers(r.lease)
		r.gone("Renew of a claim that lingers", t.renew())
		r.gone("Await of a claim that lingers", t.await())
		r.gone("Leave of a claim that lingers", t.leave())
		again, err := r.a.try(t.Claim)
		r.inTime("the Enter", again.answered, t.ends())
		r.gone("Enter of a claim that lingers", err)
		t.stillLives()
		t.expires()
		r.b.empty(t.Key)
	}), "its holder is done with it: nothing may bring it back, prolong it or end it but an operator"},
	{"LingerEndsByItself", all(lingers, fair), timed(func(r *round, key string) {
		t := r.a.holds(r.claim(key))
		next := r.b.waits(r.claim(key))
		t.lingers(r.lease)
		next.granted()
		r.notBefore(t.ends())
	}), "those in line behind a claim that lingers are granted when it is over, though nobody calls"},
	{"LingerIsSeen", lingers, func(w *world, key string) {
		t := w.a.holds(w.claim(key))
		w.wrongIf(t.stillThere().Lingering, "a claim that is held is shown as lingering")
		linger := w.longest()
		t.leaves(driver.Exit{Linger: linger})
		s := t.stillThere()
		w.wrongIf(!s.Lingering || !s.Granted,
			"a claim that lingers is shown as %+v; want granted and lingering", s)
		w.wrongIf(s.Left <= 0 || s.Left > linger+time.Second,
			"a claim that lingers for %v is shown with %v left", linger, s.Left)
	}, "people must see that nobody works under a lock that is taken, and until when"},
	{"LingeringClaimCanBeBroken", lingers, func(w *world, key string) {
		t := w.a.holds(w.claim(key))
		t.leaves(driver.Exit{Linger: w.longest()})
		t.brokenBy(w.b, "now")
		w.b.holds(noWait(w.claim(t.Key)))
	}, "an operator must be able to free a key before its time"},
	{"LingerWithMark", all(lingers, marks), timed(func(r *round, key string) {
		t := r.a.holds(r.claim(key))
		i := clock(func() { t.leaves(driver.Exit{Mark: "done", Linger: r.lease}) })
		t.leaves(driver.Exit{Mark: "done", Linger: r.longest()})
		r.until(r.over(i, r.lease))
		r.next(key, "done")
	}), "one Leave may do both, and its repeat must not count as a failure nor start the lingering again"},
}
