package drivertest

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/limit"
)

var breakLaws = slices.Concat(breakEndsLaws, breakLingersLaws, noticeLaws)

var breakEndsLaws = []law{
	{"BreakEndsTheHolder", nil, func(w *world, key string) {
		w.a.holds(w.claim(key)).learns(w.b, "it hangs: ask 'ops' \"now\"")
		w.b.holds(w.claim(key))
	}, "an operator frees a lock whose holder hangs: the lock passes on, and every answer tells the holder why"},
	{"BreakLetsTheNextIn", fair, func(w *world, key string) {
		t := w.a.holds(w.claim(key))
		next := w.b.waits(w.claim(key))
		t.learns(w.b, "enough")
		next.granted()
	}, "the next in line is granted by the break itself"},
	{"BreakOfAWaiter", fair, func(w *world, key string) {
		w.a.holds(w.reader(key))
		writer := w.a.waits(w.claim(key))
		behind := w.b.waits(w.reader(key))
		writer.learns(w.a, "no writing today")
		behind.granted()
	}, "a waiting writer can be ended too, and the readers behind it go on"},
	{"BreakMatchesTheWholeSpan", nil, func(w *world, _ string) {
		for _, at := range []int64{0, 1, 500, 999} {
			t := w.a.holds(spanning(w.claim(w.key()), 1000))
			for _, miss := range []int64{t.Token - 1, t.Token + 1000, 1} {
				w.gone("Break of a token that nobody has", w.b.Break(w.ctx, t.Key, miss, driver.Break{Reason: "wrong"}))
			}
			t.stillHolds()
			t.renews()
			w.must("Break", w.b.Break(w.ctx, t.Key, t.Token+at, driver.Break{Reason: "right"}))
			w.b.empty(t.Key)
		}
	}, "people see the token of the goroutine that holds now, anywhere in the span; no other token is the claim's"},
	{"BreakFindsOneOfMany", fair, func(w *world, key string) {
		r1, r2, r3 := w.a.holds(w.reader(key)), w.a.holds(w.reader(key)), w.b.holds(w.reader(key))
		r2.brokenBy(w.b, "the middle one")
		r1.stillHolds()
		r3.stillHolds()
		w.gone("Renew of the broken claim", r2.renew())
	}, "only the claim with that token ends: the others keep what they have"},
	{"BreakOfNobody", nil, func(w *world, _ string) {
		w.gone("Break on a key that was never used", w.a.Break(w.ctx, w.key(), 1, driver.Break{Reason: "nobody"}))
		t := w.a.holds(w.claim(w.key()))
		w.gone("Break on another key", w.a.Break(w.ctx, w.key(), t.Token, driver.Break{Reason: "wrong key"}))
		t.stillHolds()
		t.leaves()
		err := w.a.Break(w.ctx, t.Key, t.Token, driver.Break{Reason: "late"})
		gone := asA[driver.GoneError](w, "Break of a claim that left", err)
		w.wrongIf(gone.Broken, "Break of a claim that left answered %+v", gone)
		w.a.enter(w.claim(t.Key))
	}, "a break that comes too late, or for the wrong key, says so and changes nothing"},
	{"BreakOfAnExpiredClaimFindsNobody", perClaim, timed(func(w *world, key string) {
		t := w.a.holds(w.short(key)).expires()
		w.gone("Break of an expired claim", w.b.Break(w.ctx, t.Key, t.Token, driver.Break{Reason: "late"}))
	}), "an expired claim is not in line, though its row may still be there"},
	{"BreakKeepsTheIdOut", nil, timed(func(w *world, key string) {
		c := w.short(key)
		t := w.a.holds(c)
		w.voidIf("Break", w.b.Break(w.ctx, c.Key, t.Token, driver.Break{Reason: "out"}))
		w.until(t.sent.Add(t.Left * 8 / 10))
		late, err := w.a.try(c)
		w.inTime("the repeated Enter", late.answered, t.ends())
		w.broken("Enter of a broken claim", "out", err)
	}), "a client that was ended and repeats its Enter must not come back as if nothing had been said"},
	{"BreakReasonIsText", nil, func(w *world, _ string) {
		odd := "維護中 ☂ — l'arrêt\n\t\"quoted\" {braces} %s 100% $1"
		for _, reason := range []string{"", odd, fill("é", limit.Note)} {
			w.a.holds(w.claim(w.key())).learns(w.b, reason)
		}
	}, "the reason is written by a person, in any language, and is read by another"},
	{"AlarmTellsTheHolder", hasAlarm, func(w *world, _ string) {
		var broken sync.Map // by ID
		heard := make(chan driver.GoneError, 1)
		defer w.a.Backend.(driver.Alarm).Alarm(func(id string, gone driver.GoneError) {
			if _, ok := broken.Load(id); ok {
				select {
				case heard <- gone:
				default:
				}
			}
		})()
		// One message may be lost, but not one after the other. A backend that asks for news does so
		// about once a second, and a busy store answers late: an alarm may be that of a round before.
		for range maxRounds {
			t := w.a.holds(w.claim(w.key()))
			broken.Store(t.ID, true)
			t.brokenBy(w.b, "listen")
			select {
			case gone := <-heard:
				w.broken("the alarm", "listen", gone)
				return
			case <-time.After(aboutASecond):
			}
		}
		w.t.Errorf("%d claims were broken and no alarm came", maxRounds)
	}, "a holder that hears of a break at once stops at once, not at its next renewal"},
}

var breakLingersLaws = []law{
	{"BreakKeepsTheKeyClosed", lingers, timed(func(w *world, key string) {
		t := w.a.holds(w.claim(key)).brokenFor(w.lease, w.b, "out") // its lease was ten minutes
		w.until(t.sent.Add(w.lease * 8 / 10))
		early, err := w.b.try(noWait(w.claim(key)))
		w.inTime("the early try", early.answered, t.ends())
		w.wrongIf(err == nil,
			"the key was free %v after a Break that lingers for %v", early.answered.Sub(t.sent), w.lease)
		t.expires()
		w.b.empty(key)
		w.b.holds(noWait(w.claim(key))).follows(t)
	}), "the last writes of a broken holder land before anybody else begins, and not an hour later"},
	{"BreakLingersBeforeTheNext", all(lingers, fair), timed(func(w *world, key string) {
		t := w.a.holds(w.claim(key))
		next, behind := w.b.waits(w.claim(key)), w.a.waits(w.claim(key))
		t.brokenFor(w.lease, w.b, "out")
		next.granted()
		w.notBefore(t.ends())
		next.follows(t)
		behind.stillWaits()
		next.leaves()
		behind.granted().follows(next)
	}), "those in line are granted when the delay is over, in their order, though nobody calls"},
	{"BreakThatLingersIsHeardAtOnce", lingers, func(w *world, key string) {
		t := w.a.holds(w.claim(key))
		linger := w.longest()
		t.brokenFor(linger, w.b, "out").hears("out")
		s := t.stillThere()
		w.wrongIf(!s.Lingering || !s.Granted || s.Left <= 0 || s.Left > linger+time.Second,
			"a broken claim that lingers for %v is shown as %+v; want it granted and lingering", linger, s)
	}, "the holder must stop while the key is still closed: that is what the delay is for"},
	{"BreakThatLingersKeepsTheIdOut", lingers, timed(func(w *world, key string) {
		held, c := w.a.holds(w.claim(key)), w.short(w.key())
		short := w.a.holds(c)
		over := short.over()
		long := driver.Break{Reason: "longer than the lease", Delay: w.longest()}
		w.voidIf("Break", w.b.Break(w.ctx, c.Key, short.Token, long))
		w.inTime("Break", time.Now(), short.ends())
		held.brokenFor(w.lease, w.b, "shorter than the lease")
		again := driver.Break{Reason: "shorter once more", Delay: w.lease}
		w.voidIf("the second Break", w.b.Break(w.ctx, key, held.Token, again))
		w.until(time.Now().Add(w.lease + w.conf.lag))
		_, err := w.a.try(held.Claim)
		w.broken("Enter when the delay is over and the lease would not be", "shorter once more", err)
		w.until(over)
		_, err = w.a.try(c)
		w.broken("Enter when the lease would be over and the delay is not", "longer than the lease", err)
		short.stillThere()
	}), "a client that was ended and repeats its Enter must not come back, neither during the delay nor after it"},
	{"BreakKeepsTheLockDelay", lingers, func(w *world, key string) {
		delay := w.longest()
		shut := func(how driver.Break, left time.Duration) *inLine {
			c := w.claim(w.key())
			c.LockDelay = delay
			t := w.a.holds(c)
			t.must("Break", w.b.Break(w.ctx, c.Key, t.Token, how))
			t.hears(how.Reason)
			s := t.stillThere()
			w.wrongIf(!s.Lingering || s.Left <= left/2 || s.Left > left+time.Second,
				"a claim with a lock-delay of %v is shown as %+v after %+v", delay, s, how)
			w.b.refused(w.claim(c.Key))
			return t
		}
		t := shut(driver.Break{Reason: "one"}, delay)
		t.brokenBy(w.b, "sent again")
		w.b.refused(w.claim(t.Key))
		t.brokenAtOnce(w.b, "two")
		w.b.holds(w.claim(t.Key)).follows(t)
		shut(driver.Break{Reason: "three", Delay: delay / 4}, delay/4)
		c := w.claim(key)
		c.LockDelay = delay
		t = w.a.holds(c).brokenAtOnce(w.b, "four")
		w.b.holds(noWait(w.claim(key))).follows(t)
	}, "a holder that has asked for a delay after its loss gets one after a break, without a read before it"},
	{"BreakOfAWaiterDoesNotLinger", all(lingers, fair), func(w *world, key string) {
		w.a.holds(w.reader(key))
		writer := w.a.waits(w.claim(key))
		behind := w.b.waits(w.reader(key))
		writer.brokenFor(w.longest(), w.b, "no writing today").hears("no writing today")
		behind.granted()
		c := w.claim(key)
		c.LockDelay = w.longest()
		w.a.waits(c).learns(w.b, "nor with a lock-delay")
		_, ok := writer.standing()
		w.wrongIf(ok, "a waiting claim that was broken is still in line")
	}, "who only waits has written nothing that others would have to wait for"},
	{"RepeatedBreakKeepsTheLinger", lingers, func(w *world, key string) {
		t := w.a.holds(w.claim(key)).brokenFor(w.longest(), w.b, "one")
		ends := t.stillThere().Left
		for range 3 {
			t.brokenBy(w.b, "two")
		}
		t.hears("one")
		s := t.stillThere()
		w.wrongIf(!s.Lingering || s.Left > ends+time.Second || s.Left < ends-w.longest()/2,
			"a broken claim with %v left is shown as %+v after three breaks without a delay", ends, s)
		w.b.refused(w.claim(key))
	}, "a break whose answer was lost is sent again: the key must stay closed for as long as was promised"},
	{"SecondBreakEndsTheLinger", lingers, func(w *world, key string) {
		t := w.a.holds(w.claim(key)).brokenFor(w.longest(), w.b, "one")
		t.brokenAtOnce(w.b, "two").hears("two")
		next := w.b.holds(noWait(w.claim(key)))
		next.follows(t)
		next.brokenFor(w.longest(), w.a, "one")
		how := driver.Break{Reason: "two", Delay: -1, Notice: w.longest()} // it has ended: there is nothing to notify
		next.must("Break", w.a.Break(w.ctx, key, next.Token, how)).hears("two")
		w.a.holds(noWait(w.claim(key))).follows(next)
	}, "an operator who knows that the holder is dead must be able to free the key before its time"},
	{"SecondBreakLengthensTheLinger", lingers, timed(func(w *world, key string) {
		t := w.a.holds(w.claim(key)).brokenFor(w.lease, w.b, "one")
		w.voidIf("Break", w.b.Break(w.ctx, key, t.Token, driver.Break{Reason: "two", Delay: w.longest()}))
		w.inTime("the second Break", time.Now(), t.ends())
		t.hears("two")
		t.expires()
		w.b.refused(w.claim(key))
	}), "an operator must be able to close a key for longer than at first"},
	{"SecondBreakNeverShortensTheLinger", lingers, func(w *world, key string) {
		t := w.a.holds(w.claim(key)).brokenFor(w.longest(), w.b, "one")
		ends := t.stillThere().Left
		for range 3 {
			t.must("Break", w.b.Break(w.ctx, key, t.Token, driver.Break{Reason: "two", Delay: w.longest() / 10}))
		}
		s := t.stillThere()
		w.wrongIf(!s.Lingering || s.Left > ends+time.Second || s.Left < ends-w.longest()/2,
			"a broken claim with %v left is shown as %+v after three breaks with a shorter delay", ends, s)
		w.b.refused(w.claim(key))
		left := w.a.holds(w.claim(w.key())).leaves(driver.Exit{Linger: w.longest()})
		how := driver.Break{Reason: "three", Delay: w.longest() / 10}
		left.must("Break", w.b.Break(w.ctx, left.Key, left.Token, how))
		s = left.stillThere()
		w.wrongIf(s.Left < ends-w.longest()/2, "a claim that left and lingers is shown as %+v after a break", s)
	}, "one operator has been promised that the key stays closed, and another does not know of it"},
	{"BreakThatCannotLingerIsRefused", lingersNot, func(w *world, key string) {
		t := w.a.holds(w.claim(key))
		err := w.b.Break(w.ctx, key, t.Token, driver.Break{Reason: "out", Delay: w.longest()})
		w.wrongIf(!errors.Is(err, driver.ErrPermanent), "Break of a claim with linger: %v; want ErrPermanent", err)
		t.stillHolds()
		t.brokenAtOnce(w.b, "out")
		w.b.empty(key)
		c := w.claim(key)
		c.LockDelay = c.TTL
		w.a.holds(c).brokenBy(w.b, "out")
		w.b.empty(key)
	}, "an operator who asks for a delay must not get a break without one"},
}

// learns is ended by an operator, and learns the reason whatever it asks.
func (x *inLine) learns(by *view, reason string) {
	w := x.at.w
	x.brokenBy(by, reason)
	x.hears(reason)
	_, ok := x.standing()
	w.wrongIf(ok, "a broken claim is still in line")
	w.gone("the second Break", by.Break(w.ctx, x.Key, x.Token, driver.Break{Reason: "again"}))
}

// hears is told the reason of a break whatever it asks.
func (x *inLine) hears(reason string) {
	w := x.at.w
	w.broken("Renew of a broken claim", reason, x.renew())
	w.broken("Await of a broken claim", reason, x.await())
	w.broken("Leave of a broken claim", reason, x.leave(driver.Exit{Mark: "not written"}))
	_, err := x.at.try(x.Claim)
	w.broken("Enter of a broken claim", reason, err)
}
