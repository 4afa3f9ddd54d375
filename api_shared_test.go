package fencelock_test

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testclient"
)

func TestReadersShareAndAWriterIsAlone(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.client(nil), w.client(nil)
		r1 := w.got(a.RLock(bg, "k"))
		r2 := w.got(a.RLock(bg, "k"))
		r3 := w.got(b.RLock(bg, "k", fencelock.Wait(0)))
		w.held(errOf(b.TryLock(bg, "k")))
		writer := w.begin(func() (*fencelock.Lease, error) { return b.Lock(bg, "k") })
		for _, r := range []*fencelock.Lease{r1, r2, r3} {
			if writer.over() {
				t.Fatal("a writer beside readers")
			}
			w.release(r)
		}
		l := w.got(writer.wait())
		w.held(errOf(a.RLock(bg, "k", fencelock.Wait(0))))
		_, err := b.RLock(bg, "k", fencelock.Wait(0)) // the process that has the writer
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

func TestSemaphoreNeverExceedsItsSize(t *testing.T) {
	inWorld(t, func(w *world) {
		const size = 5
		var mu sync.Mutex
		held, most := int64(0), int64(0)
		rng := rand.New(rand.NewPCG(3, 4))
		var wg sync.WaitGroup
		for range 3 {
			c := w.client(nil)
			for range 4 {
				weights := make([]int64, 20)
				for i := range weights {
					weights[i] = 1 + rng.Int64N(size)
				}
				wg.Go(func() {
					for _, n := range weights {
						l, err := c.Acquire(bg, "s", n, size)
						if err != nil {
							t.Error(err)
							return
						}
						mu.Lock()
						held += n
						most = max(most, held)
						mu.Unlock()
						time.Sleep(time.Millisecond)
						mu.Lock()
						held -= n
						mu.Unlock()
						ok(t, l.Release(bg))
					}
				})
			}
		}
		wg.Wait()
		if most != size {
			t.Errorf("at most %d permits were held at once, of %d", most, size)
		}
	})
}

func TestSemaphoreIsServedInOrderOfArrival(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client(nil)
		first := w.got(c.Acquire(bg, "s", 2, 4))
		large := w.begin(func() (*fencelock.Lease, error) { return c.Acquire(bg, "s", 4, 4) })
		small := w.begin(func() (*fencelock.Lease, error) { return c.Acquire(bg, "s", 1, 4) })
		if large.over() || small.over() {
			t.Fatal("the small one overtook the large one")
		}
		w.held(errOf(c.Acquire(bg, "s", 1, 4, fencelock.Wait(0)))) // two permits are free, but somebody waits
		w.release(first)
		l := w.got(large.wait())
		if small.over() {
			t.Fatal("five of four")
		}
		w.release(l)
		w.release(w.got(small.wait()))
	})
}

func TestAcquireWithoutWaiting(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.client(&fencelock.Options{Owner: "a"}), w.client(nil)
		l1 := w.got(a.Acquire(bg, "s", 2, 3, fencelock.Wait(0)))
		l2 := w.got(b.Acquire(bg, "s", 1, 3, fencelock.Wait(0)))
		_, err := b.Acquire(bg, "s", 1, 3, fencelock.Wait(0))
		if h := w.held(err); h.Owner != "a" || h.Ahead != 2 {
			t.Errorf("%+v", h)
		}
		w.release(l1)
		l3 := w.got(b.Acquire(bg, "s", 2, 3, fencelock.Wait(0)))
		w.release(l2)
		w.release(l3)
	})
}

// sharers are two kinds of lock: a claim that has it alone, and one that shares it.
var sharers = map[string]struct {
	alone, shared func(c *fencelock.Client, ctx context.Context) (*fencelock.Lease, error)
}{
	"readers": {
		func(c *fencelock.Client, ctx context.Context) (*fencelock.Lease, error) { return c.Lock(ctx, "k") },
		func(c *fencelock.Client, ctx context.Context) (*fencelock.Lease, error) { return c.RLock(ctx, "k") },
	},
	"permits": {
		func(c *fencelock.Client, ctx context.Context) (*fencelock.Lease, error) {
			return c.Acquire(ctx, "k", 4, 4)
		},
		func(c *fencelock.Client, ctx context.Context) (*fencelock.Lease, error) {
			return c.Acquire(ctx, "k", 1, 4)
		},
	},
}

func TestClaimThatGivesUpFreesThoseBehindIt(t *testing.T) {
	for name, kind := range sharers {
		runInWorld(t, name, func(t *testing.T, w *world) {
			a, b := w.client(nil), w.client(nil)
			first := w.got(kind.shared(a, bg))
			ctx, cancel := context.WithCancel(bg)
			large := w.begin(func() (*fencelock.Lease, error) { return kind.alone(b, ctx) })
			s1 := w.begin(func() (*fencelock.Lease, error) { return kind.shared(a, bg) })
			s2 := w.begin(func() (*fencelock.Lease, error) { return kind.shared(b, bg) })
			cancel()
			w.is(errOf(large.wait()), context.Canceled, fencelock.ErrNotAcquired)
			start := time.Now()
			w.release(w.got(s1.wait()))
			w.release(w.got(s2.wait()))
			took(t, start, 0)
			w.release(first)
		})
	}
}

func TestHolderThatDiesLetsTheNextIn(t *testing.T) {
	for name, kind := range sharers {
		runInWorld(t, name, func(t *testing.T, w *world) {
			dead := testclient.New(t, &probe{Store: w.store.Store, info: w.store.info, before: only(down, "renew", "leave")},
				&fencelock.Options{TTL: 10 * time.Second})
			held := w.got(kind.shared(dead, bg))
			start := time.Now()
			l := w.got(kind.alone(w.client(&fencelock.Options{TTL: 10 * time.Second}), bg))
			tookAtMost(t, start, 11*time.Second)
			w.is(held.Err(), fencelock.ErrExpired) // before the next came
			w.release(l)
			dead.Close()
		})
	}
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

func TestSemaphoreLargestSizeAndWeight(t *testing.T) {
	inWorld(t, func(w *world) {
		sem := w.client(nil)
		l := w.got(sem.Acquire(bg, "s", driver.RW-1, driver.RW-1))
		w.held(errOf(sem.Acquire(bg, "s", 1, driver.RW-1, fencelock.Wait(0))))
		w.release(l)
		one := w.client(nil) // a mutex in all but kind
		l = w.got(one.Acquire(bg, "one", 1, 1))
		w.held(errOf(one.Acquire(bg, "one", 1, 1, fencelock.Wait(0))))
		w.release(l)
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

func TestSemaphoreTakesOptions(t *testing.T) {
	inWorld(t, func(w *world) {
		sem := w.client(nil)
		l := w.got(sem.Acquire(bg, "s", 3, 3, fencelock.MaxHold(time.Minute), fencelock.Note("n"), fencelock.TTL(5*time.Second)))
		if c := w.store.entered()[0]; c.Note != "n" || c.TTL != 5*time.Second || c.Weight != 3 || c.Capacity != 3 {
			t.Errorf("%+v", c)
		}
		<-l.Context().Done()
		w.is(l.Err(), fencelock.ErrMaxHold)
		w.held(errOf(sem.Acquire(bg, "s", 1, 3, fencelock.Wait(time.Second))))
		l = w.got(sem.Acquire(bg, "s", 2, 3, fencelock.MinHold(time.Minute)))
		w.release(l)
		w.held(errOf(sem.Acquire(bg, "s", 2, 3, fencelock.Wait(0))))
		time.Sleep(time.Minute)
		w.release(w.got(sem.Acquire(bg, "s", 3, 3, fencelock.Wait(0))))
	})
}
