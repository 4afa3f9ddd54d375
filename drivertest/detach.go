package drivertest

import (
	"context"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/driverutil"
)

var detachLaws = []law{
	{"AdoptedClaimGoesOn", detaches, func(w *world, key string) {
		t := w.a.holds(spanning(w.claim(key), 3)).detach()
		x := w.b.adopts(t)
		x.stillHolds()
		seen := w.a.line(key).Claims
		w.wrongIf(len(seen) != 1 || carried(&seen[0].Claim) != carried(&x.Claim) || seen[0].Token != t.Token,
			"the line of an adopted claim is %+v; want one claim of %s with token %d", seen, x.Owner, t.Token)
		x.leaves()
		w.a.empty(key)
		w.a.holds(w.claim(key)).follows(x)
	}, "the work goes on in another process under the same token"},
	{"OldIDIsGoneAtOnce", detaches, func(w *world, key string) {
		t := w.a.holds(w.claim(key)).detach()
		x := w.b.adopts(t)
		t.adoptedByAnother("Renew", t.renew())
		t.adoptedByAnother("Leave", t.leave())
		_, err := w.a.adopt(t)
		t.adoptedByAnother("Adopt", err)
		w.a.keptOut(t.Claim)
		x.stillHolds()
		w.a.refused(w.claim(key))
	}, "of two who believe to have a claim, one must learn at its next request that it has not"},
	{"AdoptIsForOne", detaches, func(w *world, key string) {
		t := w.a.holds(w.claim(key)).detach()
		by := w.adopter(t)
		first, err := w.b.adoptBy(t, by)
		w.must("Adopt", err)
		again, err := w.b.adoptBy(t, by)
		w.must("the repeated Adopt", err)
		same(w, "the token of the repeated Adopt", again.Token, first.Token)
		_, err = w.a.adopt(t)
		t.adoptedByAnother("Adopt by a second process", err)
		first.stillHolds()
	}, "a handle that two processes have must make one holder, and a lost answer must not make none"},
	{"AdoptWithoutAnAnswerIsUndone", detaches, func(w *world, key string) {
		t := w.a.holds(w.claim(key)).detach()
		x := w.b.adopts(t)
		// All that a process knows whose Adopt got no answer.
		lost := w.view().with(driver.Ticket{Claim: x.Claim, Token: t.Token})
		w.must("Leave of a claim that got no answer to its Adopt", lost.leave(driver.Exit{Tombstone: true}))
		w.a.empty(key)
		w.b.holds(w.claim(key))
	}, "a process that ends while it adopts would keep the key from everybody, and nobody has the lease"},
	{"AdoptedInItsPlace", all(fair, detaches), func(w *world, key string) {
		t := w.a.holds(w.claim(key)).detach()
		next, last := w.b.waits(w.claim(key)), w.a.waits(w.claim(key))
		x := w.b.adopts(t)
		next.stillWaits()
		x.leaves()
		next.granted()
		last.stillWaits()
	}, "who adopts takes nobody's turn, and gives it to those who waited"},
	{"DetachedOutlivesItsProcess", all(detaches, closes), timed(func(w *world, key string) {
		own := w.view()
		t := own.holds(w.short(key)).detach()
		end := t.ends()
		w.must("Close", own.Close())
		t.at = w.b
		x, err := w.b.adopt(t)
		w.inTime("Adopt", x.answered, end)
		w.must("Adopt after the process of the holder has ended", err)
		x.stillLives()
	}), "a process may end after it has handed its lock on"},
	{"DetachedEndsWithItsLease", detaches, timed(func(w *world, key string) {
		t := w.a.holds(w.short(key)).detach()
		t.expires()
		next := w.b.holds(w.claim(key))
		_, err := w.a.adopt(t)
		w.gone("Adopt after the lease", err)
		next.stillHolds()
	}), "a handle that nobody adopts must not keep the key forever, nor take it from the next holder"},
	{"DetachedByItsHandle", detaches, timed(func(w *world, key string) {
		t := w.a.holds(w.short(key)).detach()
		t.at = w.b
		w.until(t.sent.Add(t.TTL * 6 / 10))
		end := t.ends()
		err := t.renew()
		w.inTime("the renewal by another process", time.Now(), end)
		w.must("Renew by another process", err)
		w.until(t.sent.Add(t.TTL * 8 / 10))
		t.stillLives()
		err = t.leave()
		w.inTime("the release", time.Now(), t.ends())
		w.must("Leave by another process", err)
		w.a.empty(key)
	}), "a program that only passes handles on renews and releases them without adopting"},
	{"AdoptStartsTheLease", detaches, timed(func(w *world, key string) {
		t := w.a.holds(w.short(key)).detach()
		w.until(t.sent.Add(t.TTL / 2))
		end := t.ends()
		by := w.adopter(t)
		by.TTL = w.lease
		x, err := w.b.adoptBy(t, by)
		w.inTime("Adopt", x.answered, end)
		w.must("Adopt", err)
		w.until(x.sent.Add(x.TTL * 8 / 10))
		x.stillLives()
	}), "who adopts counts from the sending of Adopt"},
	{"OnlyHoldersAreAdopted", all(fair, detaches), func(w *world, key string) {
		w.a.holds(w.claim(key))
		waiter := w.a.waits(w.claim(key))
		_, err := w.b.adopt(waiter)
		w.gone("Adopt of a claim that waits", err)
		waiter.stillWaits()
		stranger := w.a.with(driver.Ticket{Claim: w.claim(w.key())})
		_, err = w.b.adopt(stranger)
		w.gone("Adopt of a claim that never was", err)
	}, "a place in line is no lock"},
	{"BrokenIsNotAdopted", detaches, func(w *world, key string) {
		t := w.a.holds(w.claim(key)).detach()
		w.must("Break", w.b.Break(w.ctx, key, t.Token, driver.Break{Reason: "stuck"}))
		_, err := w.b.adopt(t)
		w.broken("Adopt of a broken claim", "stuck", err)
		w.b.empty(key)
	}, "an operator's break holds for whoever has the handle"},
	{"HolderTakesItsOwnBack", detaches, func(w *world, key string) {
		t := w.a.holds(w.claim(key)).detach()
		for range 3 {
			t = w.a.adopts(t)
			t.stillHolds()
			t.detach()
		}
		w.b.refused(w.claim(key))
		t.leaves()
		w.b.empty(key)
	}, "a program that restarts takes back the lock that it had"},
}

// namedLaws are about claims whose ID the program has drawn.
var namedLaws = []law{
	{"NamedClaimKeepsItsPlace", all(fair, detaches), func(w *world, key string) {
		holder := w.a.holds(w.claim(key))
		c := named(w.claim(key))
		first, last := w.a.waits(c), w.b.waits(w.claim(key))
		again := w.b.waits(c)
		same(w, "the token of the repeated Enter", again.Token, first.Token)
		w.must("Renew by another process", again.renew())
		holder.leaves()
		again.granted()
		last.stillWaits()
		again.leaves()
		last.granted()
	}, "who asks again at another server has not lost its turn"},
	{"NamedClaimIsWokenWhereItWaits", all(fair, detaches), timed(func(w *world, key string) {
		holder := w.a.holds(w.claim(key))
		c := named(w.claim(key))
		w.a.waits(c)
		again := w.b.waits(c)
		w.grants(func() { holder.leaves() }, again)
	}), "the push must go to the server that was asked last: the one before may be gone"},
	{"NamedClaimOutlivesItsProcess", all(fair, detaches, closes), func(w *world, key string) {
		holder := w.a.holds(w.claim(key))
		c := named(w.claim(key))
		own := w.view()
		first := own.waits(c)
		last := w.a.waits(w.claim(key))
		w.must("Close", own.Close())
		again := w.b.waits(c)
		same(w, "the token of the repeated Enter", again.Token, first.Token)
		holder.leaves()
		again.granted()
		last.stillWaits()
	}, "a server that is replaced does not send its callers to the end of the line"},
	{"NamedClaimEndsWithItsLease", detaches, timed(func(w *world, key string) {
		t, other := w.a.holds(named(w.short(key))), w.a.holds(w.short(w.key()))
		for time.Now().Before(t.over()) {
			w.until(time.Now().Add(t.TTL / 3))
			end := other.ends()
			err := other.renew()
			w.inTime("the renewal of another claim", time.Now(), end)
			w.must("Renew of another claim of the process", err)
		}
		w.b.holds(w.claim(key))
	}), "a caller that never asks again does not keep the key, however busy the server is that it asked"},
	{"NamedGrantIsFoundAgain", detaches, func(w *world, key string) {
		c := named(w.claim(key))
		t := w.a.holds(c)
		again := w.b.holds(c)
		same(w, "the token of the repeated Enter", again.Token, t.Token)
		t.detach()
		last := w.b.holds(c)
		same(w, "the token of the Enter after the Detach", last.Token, t.Token)
		last.detach()
		t.stillHolds()
		w.a.refused(w.claim(key))
		last.leaves()
		w.a.empty(key)
	}, "who asks again because the answer was lost gets the lock that it has"},
	{"NamedGrantOutlivesAnotherWait", all(fair, detaches), func(w *world, key string) {
		holder := w.a.holds(w.claim(key))
		c := named(w.claim(key))
		first, next := w.a.waits(c), w.a.waits(w.claim(key))
		again := w.b.waits(c)
		holder.leaves()
		again.granted()
		w.stays("Leave of the process that has not heard of the grant", first.leave(onlyWaiting))
		again.stillHolds()
		again.renews()
		next.stillWaits()
		again.leaves()
		next.granted()
	}, "two servers wait for one caller: the one whose wait ends does not end the grant that the other has returned"},
	{"NamedEnterAfterItsEnd", detaches, func(w *world, key string) {
		c := named(w.claim(key))
		t := w.a.holds(c)
		w.must("Leave", w.a.Leave(w.ctx, t.Ticket, driver.Exit{Tombstone: true}))
		w.b.keptOut(c)
		w.b.holds(w.claim(key))
	}, "a call that is over stays over, also for a server that hears of it late"},
}

func named(c driver.Claim) driver.Claim {
	c.Named = true
	return c
}

func detaches(b driver.Backend, _ config) bool { return is[driver.Detacher](b) }

// detach detaches the claim, whose lease starts again.
func (x *inLine) detach() *inLine {
	w := x.at.w
	sent := time.Now()
	err := x.at.Backend.(driver.Detacher).Detach(w.ctx, x.Ticket)
	if driver.Gone(err) {
		w.inTime("Detach", time.Now(), x.ends())
	}
	w.must("Detach", err)
	x.sent, x.answered, x.Left, x.Named = sent, time.Now(), x.TTL, true
	w.mu.Lock()
	defer w.mu.Unlock()
	w.placed = append(w.placed, *x)
	return x
}

// adopter is another process that wants the claim of x.
func (w *world) adopter(x *inLine) driver.Claim {
	by := x.Claim
	by.Named = false
	by.ID, by.Owner, by.Note, by.Trace = newID(), "another@elsewhere", "taken over", "another's"
	by.LockDelay = w.info.MinTTL
	return by
}

// adopt tries to adopt the claim of x.
func (v *view) adopt(x *inLine) (*inLine, error) { return v.adoptBy(x, v.w.adopter(x)) }

func (v *view) adoptBy(x *inLine, by driver.Claim) (*inLine, error) {
	t := x.Ticket
	t.Named = true
	return v.send(v.w.ctx, by, func(ctx context.Context, by driver.Claim) (driver.Ticket, error) {
		return v.Backend.(driver.Detacher).Adopt(ctx, t, by)
	})
}

// adopts adopts the claim of x.
func (v *view) adopts(x *inLine) *inLine {
	w := v.w
	y, err := v.adopt(x)
	w.must("Adopt", err)
	by := y.Claim
	by.Owner, by.Note, by.Trace = "another@elsewhere", "taken over", "another's"
	by.LockDelay = w.info.MinTTL
	w.sound(by, y.Ticket)
	w.wrongIf(!y.Granted || y.Named || y.Token != x.Token || y.Span < x.Span || y.ID == x.ID,
		"Adopt of %+v answered %+v; want it granted, with the token and another ID", x.Ticket, y.Ticket)
	return y
}

// adoptedByAnother holds err to the answer for an ID whose claim has another one now.
func (x *inLine) adoptedByAnother(what string, err error) {
	w := x.at.w
	same(w, what+" of a claim that another has adopted", asA[driver.GoneError](w, what, err), driverutil.Adopted)
}
