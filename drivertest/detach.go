package drivertest

import (
	"context"
	"time"

	"github.com/fencelock/fencelock/driver"
)

var detachLaws = []law{
	{"AdoptedClaimGoesOn", detaches, func(w *world, key string) {
		t := w.a.holds(spanning(w.claim(key), 3)).detach()
		x := w.b.adopts(t)
		x.stillHolds()
		seen := w.a.line(key).Claims
		w.wrongIf(len(seen) != 1 || seen[0].Owner != x.Owner || seen[0].Note != x.Note || seen[0].Token != t.Token,
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
	}), "a handle that nobody adopts must not keep the key for ever, nor take it from the next holder"},
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
		t.leaves()
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
		w.must("Break", w.b.Break(w.ctx, key, t.Token, "stuck"))
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

func detaches(b driver.Backend, _ config) bool { return is[driver.Detacher](b) }

// detach detaches the claim, whose lease starts again.
func (x *inLine) detach() *inLine {
	w := x.at.w
	sent := time.Now()
	w.must("Detach", x.at.Backend.(driver.Detacher).Detach(w.ctx, x.Ticket))
	x.sent, x.answered, x.Left, x.Detached = sent, time.Now(), x.TTL, true
	w.mu.Lock()
	defer w.mu.Unlock()
	w.placed = append(w.placed, *x)
	return x
}

// adopter is another process that wants the claim of x.
func (w *world) adopter(x *inLine) driver.Claim {
	by := x.Claim
	by.ID, by.Owner, by.Note = newID(), "another@elsewhere", "taken over"
	return by
}

// adopt tries to adopt the claim of x.
func (v *view) adopt(x *inLine) (*inLine, error) { return v.adoptBy(x, v.w.adopter(x)) }

func (v *view) adoptBy(x *inLine, by driver.Claim) (*inLine, error) {
	t := x.Ticket
	t.Detached = true
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
	by.Owner, by.Note = "another@elsewhere", "taken over"
	w.sound(by, y.Ticket)
	w.wrongIf(!y.Granted || y.Detached || y.Token != x.Token || y.Span < x.Span || y.ID == x.ID,
		"Adopt of %+v answered %+v; want it granted, with the token and another ID", x.Ticket, y.Ticket)
	return y
}

// adoptedByAnother holds err to the answer for an ID whose claim has another one now.
func (x *inLine) adoptedByAnother(what string, err error) {
	w := x.at.w
	same(w, what+" of a claim that another has adopted", asA[driver.GoneError](w, what, err), driver.Adopted)
}
