package fencelock_test

import (
	"strings"
	"testing"

	"github.com/fencelock/fencelock"
)

// In order of arrival: neither writers nor readers starve.
func TestReadersAndWritersAreServedInOrderOfArrival(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.client(nil), w.client(nil)
		r1 := w.got(a.RLock(bg, "k"))
		w1 := w.begin(func() (*fencelock.Lease, error) { return a.Lock(bg, "k") })
		r2 := w.begin(func() (*fencelock.Lease, error) { return a.RLock(bg, "k") })
		r3 := w.begin(func() (*fencelock.Lease, error) { return b.RLock(bg, "k") })
		w2 := w.begin(func() (*fencelock.Lease, error) { return b.Lock(bg, "k") })
		if r2.over() || r3.over() {
			t.Fatal("a reader overtook a waiting writer")
		}
		w.held(errOf(b.RLock(bg, "k", fencelock.Wait(0))))

		w.release(r1)
		l := w.got(w1.wait())
		if r2.over() || r3.over() || w2.over() {
			t.Fatal("somebody beside the writer")
		}
		w.release(l)
		l2, l3 := w.got(r2.wait()), w.got(r3.wait())
		if w2.over() {
			t.Fatal("the writer overtook readers")
		}
		w.release(l2)
		w.release(l3)
		w.release(w.got(w2.wait()))
	})
}

// A deploy changes the size of a semaphore while the old program holds permits and waits for more.
// The new one is told both sizes, and has its own when the old one is gone.
func TestAnotherSizeIsErrKind(t *testing.T) {
	inWorld(t, func(w *world) {
		old, now := w.client(nil), w.client(nil)
		refused := func() {
			t.Helper()
			for _, err := range []error{
				errOf(now.Acquire(bg, "s", 1, 5)), errOf(now.Acquire(bg, "s", 1, 2, fencelock.Wait(0))),
			} {
				w.is(err, fencelock.ErrKind)
				w.not(err, fencelock.ErrNotAcquired, fencelock.ErrUnavailable, fencelock.ErrInvalid)
				if !strings.Contains(err.Error(), "it is a semaphore of size 3, not a semaphore of size ") {
					t.Errorf("%v; want both sizes", err)
				}
			}
		}
		held := w.got(old.Acquire(bg, "s", 3, 3))
		_, err := old.Acquire(held.Context(), "s", 1, 4, fencelock.Reentrant())
		w.is(err, fencelock.ErrKind)
		refused()
		second := w.begin(func() (*fencelock.Lease, error) { return old.Acquire(bg, "s", 1, 3) })
		refused()
		w.release(held)
		l := w.got(second.wait())
		refused()
		w.release(l)
		w.release(w.got(now.Acquire(bg, "s", 5, 5)))
	})
}

func TestSemaphoreNeedsABackendThatKeepsOne(t *testing.T) {
	inWorld(t, func(w *world) {
		w.store.info.Fair = false
		c := w.client(nil)
		w.is(errOf(c.Acquire(bg, "s", 1, 3)), fencelock.ErrInvalid)
		w.steps()
		w.release(w.got(c.RLock(bg, "r"))) // readers are another matter
	})
}
