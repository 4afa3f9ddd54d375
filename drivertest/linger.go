package drivertest

import (
	"time"

	"github.com/fencelock/fencelock/driver"
)

var lingerLaws = []law{
	{"LingerKeepsThePlaceTaken", lingers, timed(func(w *world, key string) {
		t := w.a.holds(w.claim(key)).lingers(w.lease)
		w.until(t.sent.Add(w.lease * 8 / 10))
		early, err := w.b.try(noWait(w.claim(key)))
		w.inTime("the early try", early.answered, t.ends())
		w.wrongIf(err == nil,
			"the key was free %v after a Leave that lingers for %v", early.answered.Sub(t.sent), w.lease)
		t.expires()
		w.b.empty(key)
		w.b.holds(noWait(w.claim(key)))
	}), "MinHold keeps the key taken after the release: another machine's fast clock must not start a job twice"},
	{"LingerReplacesTheLease", lingers, timed(func(w *world, key string) {
		t := w.a.holds(w.claim(key)) // ten minutes
		t.lingers(w.lease)
		t.expires()
		w.b.empty(t.Key)
	}), "lingering counts from Leave: a long lease must not keep the key taken for longer"},
	{"LingerOutlastsTheLease", lingers, timed(func(w *world, key string) {
		t := w.a.holds(w.short(key))
		w.voidIf("Leave", t.leave(driver.Exit{Linger: w.longest()}))
		left := time.Now()
		w.inTime("Leave", left, t.ends())
		w.until(left.Add(t.TTL + w.conf.lag))
		w.b.refused(w.claim(t.Key))
	}), "the key stays taken for as long as was asked for, though the lease would have ended before"},
	{"LingeringClaimHasLeft", lingers, timed(func(w *world, key string) {
		t := w.a.holds(w.claim(key)).lingers(w.lease)
		w.gone("Renew of a claim that lingers", t.renew())
		w.gone("Await of a claim that lingers", t.await())
		w.gone("Leave of a claim that lingers", t.leave())
		again, err := w.a.try(t.Claim)
		w.inTime("the Enter", again.answered, t.ends())
		w.gone("Enter of a claim that lingers", err)
		t.stillLives()
		t.expires()
		w.b.empty(t.Key)
	}), "its holder is done with it: nothing may bring it back, prolong it or end it but an operator"},
	{"LingerEndsByItself", all(lingers, fair), timed(func(w *world, key string) {
		t := w.a.holds(w.claim(key))
		next := w.b.waits(w.claim(key))
		t.lingers(w.lease)
		next.granted()
		w.notBefore(t.ends())
	}), "those in line behind a claim that lingers are granted when it is over, though nobody calls"},
	{"LingerIsSeen", lingers, func(w *world, key string) {
		t := w.a.holds(w.claim(key))
		w.wrongIf(t.stillThere().Lingering, "a claim that is held is shown as lingering")
		linger := w.longest()
		t.leaves(driver.Exit{Linger: linger})
		s := t.stillThere()
		w.wrongIf(!s.Lingering || !s.Granted, "a claim that lingers is shown as %+v; want granted and lingering", s)
		w.wrongIf(s.Left <= 0 || s.Left > linger+time.Second,
			"a claim that lingers for %v is shown with %v left", linger, s.Left)
	}, "people must see that nobody works under a lock that is taken, and until when"},
	{"LingeringClaimCanBeBroken", lingers, func(w *world, key string) {
		t := w.a.holds(w.claim(key)).leaves(driver.Exit{Linger: w.longest()})
		t.brokenBy(w.b, "not now")
		w.wrongIf(!t.stillThere().Lingering, "a claim does not linger any more after a break that says nothing of it")
		w.b.refused(w.claim(key))
		t.brokenAtOnce(w.b, "now")
		w.b.holds(noWait(w.claim(t.Key)))
	}, "an operator must be able to free a key before its time"},
	{"LingerWithMark", all(lingers, fair), timed(func(w *world, key string) {
		t := w.a.holds(w.claim(key))
		t.leaves(driver.Exit{Mark: "done", Linger: w.lease})
		left := time.Now()
		t.leaves(driver.Exit{Mark: "done", Linger: w.longest()})
		w.until(left.Add(w.lease + w.conf.lag))
		w.next(key, "done")
	}), "one Leave may do both, and its repeat must not count as a failure nor start the lingering again"},
}
