package drivertest

import (
	"errors"
	"time"

	"github.com/fencelock/fencelock/driver"
)

var noticeLaws = []law{
	{"NoticeEndsTheClaim", nil, timed(func(w *world, key string) {
		t := w.a.holds(w.claim(key)).noticed(w.b, driver.Break{Reason: "out", Notice: w.lease}) // of ten minutes
		left := t.hearsNotice("out")
		w.wrongIf(left > w.lease+time.Second, "a claim with a notice of %v has %v left", w.lease, left)
		early, err := w.b.try(noWait(w.claim(key)))
		w.inTime("the early try", early.answered, t.ends())
		w.wrongIf(err == nil, "the key was free %v after a notice of %v", early.answered.Sub(t.sent), w.lease)
		t.expires()
		t.hears("out")
		w.b.holds(noWait(w.claim(key))).follows(t)
	}), "the store ends the claim when the notice is over, whatever renews it: nobody has to stay for that"},
	{"NoticeIsShown", nil, func(w *world, key string) {
		t := w.a.holds(w.claim(key))
		before := t.stillThere()
		w.wrongIf(before.Reason != "", "a claim that nobody has broken is shown as %+v", before)
		t.noticed(w.b, driver.Break{Reason: "at noon", Notice: w.longest()})
		s := t.stillThere()
		w.wrongIf(s.Reason != "at noon" || !s.Granted || s.Left <= 0 || s.Left > w.longest()+time.Second,
			"a claim with a notice of %v is shown as %+v; want its reason", w.longest(), s)
	}, "another operator who looks must see that the grant ends, when, and why"},
	{"NoticeIsFollowedByTheDelay", lingers, timed(func(w *world, key string) {
		long := w.longest()
		t := w.a.holds(w.claim(key)).noticed(w.b, driver.Break{Reason: "out", Notice: w.lease, Delay: long})
		t.expires()
		t.hears("out")
		s := t.stillThere()
		w.wrongIf(!s.Lingering || s.Left <= long/2 || s.Left > long,
			"a claim with a delay of %v is shown as %+v after its notice", long, s)
		w.b.refused(w.claim(key))

		c := w.claim(w.key())
		c.LockDelay = long
		own := w.a.holds(c).noticed(w.b, driver.Break{Reason: "out", Notice: w.lease})
		own.expires()
		w.b.refused(w.claim(c.Key))
		own.brokenAtOnce(w.b, "open")
		w.b.holds(w.claim(c.Key)).follows(own)
	}), "a holder that does not stop in time writes on for a moment: the delay is for that"},
	{"NoticeLetsTheHolderLeave", fair, func(w *world, key string) {
		t := w.a.holds(w.claim(key))
		next := w.b.waits(w.claim(key))
		t.noticed(w.b, driver.Break{Reason: "please", Notice: w.longest(), Delay: w.delay()})
		t.hearsNotice("please")
		t.stillHolds()
		t.leaves()
		next.granted().follows(t)
	}, "a holder that has finished its work hands the lock on, and nobody waits for the rest of the notice"},
	{"NoticeWakesTheNext", fair, timed(func(w *world, key string) {
		t := w.a.holds(w.claim(key))
		next := w.b.waits(w.claim(key))
		t.noticed(w.b, driver.Break{Reason: "out", Notice: w.lease})
		next.granted()
		w.notBefore(t.ends())
		next.follows(t)
	}), "the next in line is granted when the notice is over, though nobody calls"},
	{"NoticeOutlivesTheLease", perClaim, timed(func(w *world, key string) {
		c := w.short(key)
		t := w.a.holds(c)
		over := t.over()
		w.voidIf("Break", w.b.Break(w.ctx, key, t.Token, driver.Break{Reason: "out", Notice: w.longest()}))
		w.inTime("Break", time.Now(), t.ends())
		w.until(over)
		t.hearsNotice("out")
		w.b.refused(w.claim(key))
	}), "what was promised to the holder is kept: until then it may work"},
	{"NoticeIsNeverShortened", nil, func(w *world, key string) {
		long := w.longest()
		t := w.a.holds(w.claim(key)).noticed(w.b, driver.Break{Reason: "one", Notice: long})
		for range 3 {
			t.noticed(w.b, driver.Break{Reason: "two", Notice: long / 10})
		}
		left := t.hearsNotice("two")
		w.wrongIf(left < long/2, "a claim with a notice of %v has %v left after a shorter one", long, left)
		t.learns(w.b, "three")
	}, "a break whose answer was lost is sent again, or by another operator: what the first has promised stays"},
	{"NoticeNeverShortensTheDelay", lingers, func(w *world, key string) {
		long := w.longest()
		t := w.a.holds(w.claim(key)).noticed(w.b, driver.Break{Reason: "one", Notice: long, Delay: long})
		t.noticed(w.b, driver.Break{Reason: "two", Notice: long, Delay: long / 10})
		t.must("Break", w.b.Break(w.ctx, key, t.Token, driver.Break{Reason: "three", Delay: long / 10}))
		t.hears("three")
		s := t.stillThere()
		w.wrongIf(!s.Lingering || s.Left < long/2,
			"a claim with a delay of %v is shown as %+v after its break", long, s)
	}, "one operator has been promised that the key stays closed, and another does not know of it"},
	{"BreakWithoutNoticeEndsIt", nil, func(w *world, key string) {
		t := w.a.holds(w.claim(key)).noticed(w.b, driver.Break{Reason: "one", Notice: w.longest()})
		t.learns(w.b, "two")
		w.b.holds(noWait(w.claim(key))).follows(t)
	}, "an operator who cannot wait for the end of the notice must be able to end the claim"},
	{"NoticeToAWaiterEndsIt", fair, func(w *world, key string) {
		w.a.holds(w.reader(key))
		writer := w.a.waits(w.claim(key))
		behind := w.b.waits(w.reader(key))
		writer.noticed(w.b, driver.Break{Reason: "no writing today", Notice: w.longest()}).hears("no writing today")
		behind.granted()
	}, "who only waits has no work to finish"},
	{"NoticeGoesWithAnAdoptedClaim", detaches, func(w *world, key string) {
		half := w.longest() / 2
		t := w.a.holds(w.claim(key)).noticed(w.b, driver.Break{Reason: "out", Notice: half})
		t.TTL = w.claim(key).TTL // more than is left of the notice
		x := w.b.adopts(t.detach())
		left := x.hearsNotice("out")
		w.wrongIf(left > half+time.Second, "a claim with a notice of %v has %v left when it is adopted", half, left)
		x.brokenAtOnce(w.a, "now").hears("now")
		w.a.empty(key)
	}, "an adopted claim is the same grant, and its new holder must hear that it ends"},
	{"AlarmTellsOfTheNotice", hasAlarm, func(w *world, key string) {
		heard, c := make(chan driver.GoneError, 1), w.claim(key)
		defer w.a.Backend.(driver.Alarm).Alarm(func(id string, gone driver.GoneError) {
			if id == c.ID && gone.Left > 0 {
				select {
				case heard <- gone:
				default:
				}
			}
		})()
		t := w.a.holds(c)
		for range maxRounds {
			t.noticed(w.b, driver.Break{Reason: "listen", Notice: w.longest()})
			select {
			case gone := <-heard:
				w.wrongIf(!gone.Broken || gone.Reason != "listen" || gone.Left > w.longest()+time.Second,
					"the alarm tells of %+v; want a notice of %v", gone, w.longest())
				return
			case <-time.After(aboutASecond):
			}
		}
		w.t.Errorf("notice was given %d times and no alarm came", maxRounds)
	}, "a holder that hears of a notice at once has all of it to finish its work"},
	{"NoticeThatCannotLingerIsRefused", lingersNot, func(w *world, key string) {
		t := w.a.holds(w.claim(key))
		err := w.b.Break(w.ctx, key, t.Token, driver.Break{Reason: "out", Notice: w.longest(), Delay: w.longest()})
		w.wrongIf(!errors.Is(err, driver.ErrPermanent),
			"Break of a claim with notice and a delay: %v; want ErrPermanent", err)
		t.renews()
	}, "an operator who asks for a delay must not get a notice without one"},
}

// delay is one that does not end during a test, where the backend keeps any.
func (w *world) delay() time.Duration {
	if w.info.Linger {
		return w.longest()
	}
	return 0
}

// noticed is told by an operator that it ends.
func (x *inLine) noticed(v *view, how driver.Break) *inLine {
	return x.lingersAfter(func() { x.must("Break", v.Break(x.at.w.ctx, x.Key, x.Token, how)) }, how.Notice)
}

// hearsNotice asks for a long lease, and is told that an operator ends it.
func (x *inLine) hearsNotice(reason string) (left time.Duration) {
	w := x.at.w
	long := *x
	long.TTL = w.claim(x.Key).TTL
	err := long.renew()
	if driver.Gone(err) {
		w.inTime("Renew under notice", time.Now(), x.ends())
	}
	gone := asA[driver.GoneError](w, "Renew under notice", err)
	w.wrongIf(!gone.Broken || gone.Reason != reason || gone.Left <= 0,
		"Renew under notice answered %+v; want time that is left, and the reason %q", gone, reason)
	return gone.Left
}
