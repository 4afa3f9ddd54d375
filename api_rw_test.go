package fencelock_test

import (
	"context"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
)

func TestReadersShareAndAWriterIsAlone(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.client(nil), w.client(nil)
		r1 := w.got(a.RLock(bg, "k"))
		r2 := w.got(a.RLock(bg, "k"))
		r3 := w.got(b.TryRLock(bg, "k"))
		w.held(errOf(b.TryLock(bg, "k")))
		writer := w.begin(func() (*fencelock.Lease, error) { return b.Lock(bg, "k") })
		for _, r := range []*fencelock.Lease{r1, r2, r3} {
			if writer.over() {
				t.Fatal("a writer beside readers")
			}
			w.release(r)
		}
		l := w.got(writer.wait())
		w.held(errOf(a.TryRLock(bg, "k")))
		_, err := b.TryRLock(bg, "k") // the process that has the writer
		w.held(err)
		w.release(l)
	})
}

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
		w.held(errOf(b.TryRLock(bg, "k")))

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

func TestWriterThatGivesUpFreesTheReadersBehindIt(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.client(nil), w.client(nil)
		r1 := w.got(a.RLock(bg, "k"))
		ctx, cancel := context.WithCancel(bg)
		wr := w.begin(func() (*fencelock.Lease, error) { return b.Lock(ctx, "k") })
		r2 := w.begin(func() (*fencelock.Lease, error) { return a.RLock(bg, "k") })
		r3 := w.begin(func() (*fencelock.Lease, error) { return b.RLock(bg, "k") })
		cancel()
		w.is(errOf(wr.wait()), context.Canceled, fencelock.ErrNotAcquired)
		start := time.Now()
		w.release(w.got(r2.wait()))
		w.release(w.got(r3.wait()))
		took(t, start, 0)
		w.release(r1)
	})
}

func TestReaderThatDiesLetsTheWriterIn(t *testing.T) {
	inWorld(t, func(w *world) {
		dead := fencelock.New(&probe{Store: w.store.Store, info: w.store.info, before: only(down, "renew", "leave")},
			&fencelock.Options{TTL: 10 * time.Second})
		r := w.got(dead.RLock(bg, "k"))
		c := w.client(&fencelock.Options{TTL: 10 * time.Second})
		start := time.Now()
		l := w.got(c.Lock(bg, "k"))
		tookAtMost(t, start, 11*time.Second)
		w.is(r.Err(), fencelock.ErrExpired) // before the writer came
		w.release(l)
		dead.Close()
	})
}

func TestReaderLeaseKeepsAllPromisesOfALease(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client(&fencelock.Options{TTL: 3 * time.Second})
		r := w.got(c.RLock(bg, "k", fencelock.MaxHold(time.Hour)))
		if r.Key() != "k" || r.Token() <= 0 || r.Deadline().Before(time.Now()) || fencelock.Held(r.Context(), "k") != r {
			t.Error(r)
		}
		ok(t, r.Renew(bg))
		time.Sleep(time.Minute)
		ok(t, r.Err())
		<-r.Context().Done()
		w.is(r.Err(), fencelock.ErrMaxHold)
	})
}
