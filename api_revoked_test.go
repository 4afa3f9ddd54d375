package fencelock_test

import (
	"testing"
	"time"

	"github.com/fencelock/fencelock"
)

// A lease whose holder does not want to know sends no request but its renewals.
func TestLeaseThatIsNotWatchedCostsNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client(&fencelock.Options{TTL: 30 * time.Second})
		lines := func(l *fencelock.Lease) (n int) {
			w.store.taken()
			time.Sleep(59*time.Second + 500*time.Millisecond)
			ok(t, l.Err())
			for _, step := range w.store.taken() {
				if step == "line" {
					n++
				} else if step != "renew" {
					t.Errorf("a step was %q", step)
				}
			}
			return n
		}
		l := w.lock(c, "k")
		if n := lines(l); n != 0 {
			t.Errorf("%d looks by a lease that was not asked to look", n)
		}
		l.Revoked()
		if n := lines(l); n != 60 {
			t.Errorf("%d looks in a minute", n)
		}
		w.release(l)
		w.store.taken()
		time.Sleep(time.Minute)
		w.steps()
	})
}

// The request is for the claim that Line shows, whichever goroutine it serves. One that was asked
// does not hand it on: the next goroutine joins the line, and is not asked.
func TestRevokedClaimIsNotHandedOn(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.client(nil), w.client(nil)
		l1 := w.lock(a, "k")
		k2 := w.begin(func() (*fencelock.Lease, error) { return a.Lock(bg, "k") })
		k3 := w.begin(func() (*fencelock.Lease, error) { return a.Lock(bg, "k") })
		r := w.revoke(bg, b, l1, patience) // l1 does not look
		w.release(l1)
		l2 := w.got(k2.wait())
		if l2.Token() != l1.Token()+1 {
			t.Fatalf("it was not handed on: %v, %v", l1, l2)
		}
		<-l2.Revoked()
		if l1.Revoked() != nil || l1.Revocation() != nil {
			t.Error("a lease that had ended was asked")
		}
		w.release(l2)
		r.ended(t, false)
		l3 := w.got(k3.wait())
		l3.Revoked()
		time.Sleep(time.Minute)
		if asked(l3) || l3.Token() == l2.Token()+1 {
			t.Errorf("%v follows %v; asked: %v", l3, l2, asked(l3))
		}
		if !asked(l2) || l2.Revocation() == nil {
			t.Error("the lease that was asked has forgotten it")
		}
		w.release(l3)
	})
}

// Of several who hold a key, the one is asked whose token it is.
func TestRevokeAsksOneOfSeveralHolders(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client(nil)
		held := []*fencelock.Lease{
			w.got(c.RLock(bg, "r")), w.got(c.RLock(bg, "r")),
			w.got(c.Acquire(bg, "s", 1, 3)), w.got(c.Acquire(bg, "s", 2, 3)),
		}
		for i, l := range held {
			for _, each := range held {
				each.Revoked()
			}
			r := w.revoke(bg, w.client(nil), l, patience)
			time.Sleep(2 * time.Second)
			for j, each := range held[i:] {
				if asked(each) != (j == 0) {
					t.Errorf("revoking %v: %v was asked: %v", l, each, asked(each))
				}
			}
			w.release(l)
			r.ended(t, false)
		}
	})
}

func TestHandlesThatShareAGrantAreAskedTogether(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client(nil)
		outer := w.lock(c, "k")
		inner := w.got(c.Lock(outer.Context(), "k", fencelock.Reentrant()))
		revoked := inner.Revoked()
		if outer.Revoked() != revoked {
			t.Error("two channels")
		}
		w.release(inner)
		r := w.revoke(bg, w.client(nil), outer, patience)
		<-revoked
		if inner.Revocation() != outer.Revocation() {
			t.Error("two requests")
		}
		w.release(outer)
		r.ended(t, false)
	})
}

// Whoever adopts a lease hears of a request that is older.
func TestAdoptedLeaseIsAsked(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.client(nil), w.client(nil)
		l := w.lock(a, "k")
		h, err := a.Detach(bg, l)
		must(t, err)
		r := w.revoke(bg, b, l, patience)
		time.Sleep(5 * time.Second)
		adopted := w.got(b.Detached(h).Adopt(bg))
		<-adopted.Revoked()
		w.release(adopted)
		r.ended(t, false)
	})
}
