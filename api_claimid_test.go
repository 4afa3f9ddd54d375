package fencelock_test

import (
	"context"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/drivertest/steps"
)

const claimID = "wish-4f1c0b7d9a2e"

// byName are the options of a call that any process may repeat.
func byName() []fencelock.Option {
	return []fencelock.Option{fencelock.ClaimID(claimID), fencelock.NoRenewal()}
}

// A call that was cut short, and is repeated in another process, has kept its place.
func TestRepeatedCallKeepsItsPlace(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b, c := w.client(nil), w.client(nil), w.client(nil)
		holder := w.lock(a, "k")
		ctx, cancel := context.WithCancel(bg)
		first := w.begin(func() (*fencelock.Lease, error) { return b.Lock(ctx, "k", byName()...) })
		last := w.later(c, "k")
		w.steps("enter", "enter", "enter")
		cancel()
		w.is(errOf(first.wait()), context.Canceled)
		time.Sleep(5 * time.Second)
		w.steps() // no Leave
		again := w.later(c, "k", byName()...)
		w.release(holder)
		l := w.got(again.wait())
		steps.Same(t, "who came later was granted first", last.over(), false)
		w.release(l)
		w.release(w.got(last.wait()))
	})
}

// A call whose answer was lost is repeated elsewhere, and gets the grant that it has. The release spends
// the ID: a repetition that arrives late must not make a second holder, whose caller has gone.
func TestRepeatedCallHasItsGrant(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.client(nil), w.client(nil)
		l := w.lock(a, "k", byName()...)
		x := w.lock(b, "k", byName()...)
		steps.Same(t, "the repeated call has token", x.Token(), l.Token())
		h, again := w.detach(a, l), w.detach(b, x)
		steps.Same(t, "the handles", h, again)
		y := w.lock(a, "k", byName()...)
		steps.Same(t, "a call after the Detach has another handle", w.detach(a, y), h)
		ok(t, b.Detached(h).Release(bg))
		w.is(errOf(b.TryLock(bg, "k", byName()...)), fencelock.ErrLost)
		w.free("k")
	})
}

// A named claim lasts without its process, so its Detach asks the store only for an old lease.
func TestDetachOfANamedLeaseRenewsAnOldOne(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.client(nil), w.client(nil)
		h := w.detach(a, w.lock(a, "k", byName()...))
		w.steps("enter")
		ok(t, a.Close())
		time.Sleep(29 * time.Second)
		ok(t, errOf(b.Detached(h).Check(bg)))
		time.Sleep(2 * time.Second)
		w.free("k")

		l := w.lock(b, "k2", byName()...)
		time.Sleep(4 * time.Second)
		w.steps("line", "enter")
		h = w.detach(b, l)
		w.steps("detach")
		time.Sleep(29 * time.Second)
		ok(t, errOf(b.Detached(h).Check(bg)))
		ok(t, b.Detached(h).Release(bg))
	})
}

// Of two processes that have a named claim, the one that loses sight of it must not end the
// grant of the other. Its late Leave would.
func TestNamedClaimIsLeftByItsReleaseAlone(t *testing.T) {
	ends := map[string]func(w *world, c *fencelock.Client, l *fencelock.Lease){
		"lost": func(w *world, _ *fencelock.Client, l *fencelock.Lease) {
			<-l.Context().Done()
			w.is(l.Err(), fencelock.ErrExpired)
			w.is(l.Release(bg), fencelock.ErrLost)
		},
		"closed": func(w *world, c *fencelock.Client, l *fencelock.Lease) {
			ok(w.T, c.Close())
			w.is(l.Release(bg), fencelock.ErrClosed)
		},
	}
	for name, end := range ends {
		runInWorld(t, name, func(t *testing.T, w *world) {
			a, b := w.client(nil), w.client(nil)
			l := w.lock(a, "k", byName()...)
			time.Sleep(20 * time.Second)
			h := w.detach(b, w.lock(b, "k", byName()...))
			end(w, a, l)
			time.Sleep(5 * time.Second)
			w.steps("enter", "enter")
			ok(t, errOf(b.Detached(h).Check(bg)))
			ok(t, b.Detached(h).Release(bg))
		})
	}
}

// A Wait that is over ends the claim for every process, whatever arrives late.
func TestWaitThatIsOverSpendsTheClaimID(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.client(nil), w.client(nil)
		holder := w.lock(a, "k")
		w.held(errOf(b.Lock(bg, "k", append(byName(), fencelock.Wait(time.Second))...)))
		if e := w.store.left(); len(e) != 1 || !e[0].Tombstone {
			t.Errorf("it left with %+v; want a tombstone", e)
		}
		w.is(errOf(a.Lock(bg, "k", byName()...)), fencelock.ErrLost)
		w.release(holder)
		w.free("k")
	})
}

// A Wait ends in one process, which has not heard that another one has got the grant.
func TestWaitThatIsOverKeepsTheGrantOfAnotherProcess(t *testing.T) {
	for name, heals := range map[string]bool{"it gets the grant, too": true, "it cannot read the line": false} {
		runInWorld(t, name, func(t *testing.T, w *world) {
			a, b, c := w.client(nil), w.client(nil), w.client(nil)
			holder := w.lock(a, "k")
			w.store.meddle(only(silent, "await"), nil)
			waits := w.later(b, "k", append(byName(), fencelock.Wait(time.Second))...)
			w.release(holder)
			l := w.lock(c, "k", byName()...)
			if heals {
				w.store.heal()
			}
			x, err := waits.wait()
			if heals {
				if x = w.got(x, err); x.Token() != l.Token() {
					t.Errorf("two grants have tokens %v and %v", x.Token(), l.Token())
				}
			} else {
				w.held(err)
			}
			w.taken("k")
			w.release(l)
			w.store.heal()
			w.free("k")
		})
	}
}

func TestClaimIDThatCannotBe(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client(nil)
		for _, id := range []string{"", "short", "no spaces in an ID", "a.dot.is.in.handles", string(make([]byte, 65))} {
			w.is(errOf(c.TryLock(bg, "k", fencelock.ClaimID(id))), fencelock.ErrInvalid)
		}
		holder := w.lock(c, "k", fencelock.MinHold(0))
		ctx, cancel := context.WithCancel(bg)
		first := w.begin(func() (*fencelock.Lease, error) { return c.Lock(ctx, "k", byName()...) })
		w.is(errOf(c.Lock(bg, "k", byName()...)), fencelock.ErrInvalid)
		w.is(errOf(c.Lock(bg, "another", byName()...)), fencelock.ErrInvalid) // a push says which claim is granted by its ID
		cancel()
		w.is(errOf(first.wait()), context.Canceled)
		w.release(holder)
		time.Sleep(time.Minute)
	})
}

// A service named two wishes alike. The second one was shown all nine permits of a semaphore, where it had
// five; or the grant of a reader, for the whole key.
func TestClaimIDIsForOneWish(t *testing.T) {
	for name, second := range map[string]func(c *fencelock.Client) (*fencelock.Lease, error){
		"more permits": func(c *fencelock.Client) (*fencelock.Lease, error) { return c.Acquire(bg, "k", 9, 9, byName()...) },
		"a writer":     func(c *fencelock.Client) (*fencelock.Lease, error) { return c.Lock(bg, "k", byName()...) },
		"another key":  func(c *fencelock.Client) (*fencelock.Lease, error) { return c.Acquire(bg, "k2", 5, 9, byName()...) },
	} {
		runInWorld(t, name, func(t *testing.T, w *world) {
			a, b := w.client(nil), w.client(nil)
			l := w.got(a.Acquire(bg, "k", 5, 9, byName()...))
			for _, c := range []*fencelock.Client{a, b} {
				if name == "another key" && c == b {
					continue // other processes may name what they like
				}
				_, err := second(c)
				w.is(err, fencelock.ErrInvalid)
				w.not(err, fencelock.ErrUnavailable, fencelock.ErrKind, fencelock.ErrNotAcquired, fencelock.ErrLost)
			}
			steps.Same(t, "Leaves were sent", len(w.store.left()), 0)
			time.Sleep(20 * time.Second)
			ok(t, l.Renew(bg))
			w.release(l)
			w.free("k")
		})
	}
}

// The same where the first request of the second wish got no answer: what is undone afterwards
// must not be the claim of the first wish.
func TestClaimIDOfAnotherWishIsLeftAlone(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.client(nil), w.client(nil)
		l := w.got(a.RLock(bg, "k", byName()...))
		w.store.meddle(atFirst(down), nil)
		w.is(errOf(b.Lock(bg, "k", append(byName(), fencelock.Wait(time.Minute))...)), fencelock.ErrInvalid)
		time.Sleep(time.Second)
		steps.Same(t, "Leaves were sent", len(w.store.left()), 0)
		ok(t, l.Renew(bg))
		w.release(l)
	})
}

// A call that shares the lease of its context has no claim of its own, and so no ClaimID.
func TestShareHasNoClaimIDOfItsOwn(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client(nil)
		l := w.lock(c, "k", byName()...)
		w.is(errOf(c.Lock(l.Context(), "k", fencelock.Reentrant(), fencelock.ClaimID("another-wish-4711"))), fencelock.ErrInvalid)
		w.release(w.got(c.Lock(l.Context(), "k", fencelock.Reentrant(), fencelock.ClaimID(claimID))))
		w.release(l)
	})
}
