package fencelock_test

import (
	"bytes"
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testclient"
)

// endings are the two ways to end a Client.
var endings = map[string]func(c *fencelock.Client) error{
	"Close":    (*fencelock.Client).Close,
	"Shutdown": func(c *fencelock.Client) error { return c.Shutdown(bg) },
}

func TestEveryCallOnAClosedClientIsErrClosed(t *testing.T) {
	for how, end := range endings {
		runInWorld(t, how, func(t *testing.T, w *world) {
			c := w.client(nil)
			w.release(w.lock(c, "k"))
			w.store.taken()
			for range 2 {
				ok(t, end(c))
			}
			everyCallIs(w, c, fencelock.ErrClosed)
		})
	}
}

//verify:fault The API, on all stores | Close with locks held, and during Lock
func TestCloseEndsEveryLeaseWithErrClosed(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client(nil)
		first := w.lock(c, "k")
		leases := []*fencelock.Lease{
			first,
			w.got(c.Lock(context.WithoutCancel(first.Context()), "k", fencelock.Reentrant())),
			w.got(c.RLock(bg, "r")),
			w.got(c.Acquire(bg, "s", 2, 3)),
			w.lock(c, "f", fencelock.NoRenewal(), fencelock.TTL(time.Hour)),
			w.lock(c, "m", fencelock.MaxHold(time.Hour)),
		}
		w.store.taken()
		start := time.Now()
		ok(t, c.Close())
		took(t, start, 0)
		for _, l := range leases {
			w.is(l.Err(), fencelock.ErrClosed, fencelock.ErrLost)
			w.is(context.Cause(l.Context()), fencelock.ErrClosed)
			w.is(l.Release(bg), fencelock.ErrClosed)
			w.is(l.Renew(bg), fencelock.ErrClosed)
		}
		w.steps("leave", "leave", "leave", "leave", "leave")
		for _, k := range []string{"k", "r", "s", "f", "m"} {
			w.free(k)
		}
		w.store.taken()
		time.Sleep(time.Hour)
		w.steps() // nothing goes on
	})
}

// The context of a holder ends before its key can be somebody else's.
func TestLeaseEndsBeforeTheStoreIsAsked(t *testing.T) {
	for how, end := range map[string]func(c *fencelock.Client, l *fencelock.Lease) error{
		"Close":   func(c *fencelock.Client, _ *fencelock.Lease) error { return c.Close() },
		"Release": func(_ *fencelock.Client, l *fencelock.Lease) error { return l.Release(bg) },
	} {
		runInWorld(t, how, func(t *testing.T, w *world) {
			c := w.client(nil)
			l := w.lock(c, "k")
			w.store.meddle(only(func(context.Context, string) error {
				if l.Context().Err() == nil || l.Err() == nil {
					t.Error("the key is given back under a holder that does not know")
				}
				return nil
			}, "leave"), nil)
			ok(t, end(c, l))
			w.steps("enter", "leave")
		})
	}
}

//verify:fault The API, on all stores | Close with locks held, and during Lock
func TestCloseEndsAllWaiting(t *testing.T) {
	for how, end := range map[string]func(c *fencelock.Client) error{
		"Close": (*fencelock.Client).Close,
		"Shutdown": func(c *fencelock.Client) error {
			ctx, cancel := context.WithTimeout(bg, time.Second)
			defer cancel()
			return c.Shutdown(ctx)
		},
	} {
		runInWorld(t, how, func(t *testing.T, w *world) {
			other, c := w.client(nil), w.client(nil)
			theirs, own := w.lock(other, "theirs"), w.lock(c, "own")
			calls := []*call{
				w.later(c, "theirs"),                   // in the store
				w.later(c, "theirs"),                   // behind that one
				w.later(c, "own"),                      // behind a holder here
				w.later(c, "own", fencelock.Note("n")), // beside the local queue
				w.later(c, "own", fencelock.NoRenewal(), fencelock.TTL(time.Hour)),
				w.begin(func() (*fencelock.Lease, error) { return c.RLock(bg, "theirs", fencelock.Wait(1<<40)) }),
				w.begin(func() (*fencelock.Lease, error) { return nil, errOf(c.LockAll(bg, []string{"a", "own"})) }),
			}
			end(c)
			for i, k := range calls {
				if !k.over() {
					t.Errorf("call %d goes on", i)
					continue
				}
				w.is(k.err, fencelock.ErrClosed)
				w.not(k.err, fencelock.ErrNotAcquired, fencelock.ErrUnavailable)
			}
			w.is(own.Err(), fencelock.ErrClosed)
			steps.Well(t, "another Client's lease", theirs.Err())
			w.release(theirs)
			w.free("theirs")
			w.free("own")
			w.free("a")
		})
	}
}

// A look or a Break that the store does not answer is cut short by Close, and says so.
func TestCloseCutsShortWhatTheStoreDoesNotAnswer(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client(nil)
		w.store.meddle(silent, nil)
		k := w.begin(func() (*fencelock.Lease, error) { return nil, c.Break(bg, "k", 1, fencelock.Break{}) })
		w.store.heal()
		ok(t, c.Close())
		steps.Same(t, "it has ended", k.over(), true)
		w.is(k.err, fencelock.ErrClosed)
		w.not(k.err, fencelock.ErrUnavailable)
	})
}

// The store hangs: Close returns after two seconds, and what it started ends, or the bubble would not.
func TestCloseIsBoundedAndLeavesNoGoroutine(t *testing.T) {
	for name, fault := range faults {
		runInWorld(t, name, func(t *testing.T, w *world) {
			c := w.client(&fencelock.Options{TTL: 30 * time.Second})
			leases := []*fencelock.Lease{w.lock(c, "a"), w.lock(c, "b"), w.lock(c, "c")}
			w.store.meddle(fault, nil)
			time.Sleep(11 * time.Second) // renewals are on their way
			go c.Lock(bg, "d")
			go leases[0].Release(bg)
			synctest.Wait()
			start := time.Now()
			ok(t, c.Close())
			tookAtMost(t, start, 2*time.Second)
			for _, l := range leases[1:] {
				w.is(l.Err(), fencelock.ErrClosed)
			}
			w.store.taken()
			time.Sleep(10 * time.Minute)
			w.steps()
		})
	}
}

// A Leave has failed so often that it is repeated every few seconds. The one that is under way
// as Close begins fails too, and Close has no such time.
func TestCloseRepeatsALeaveSoon(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client(&fencelock.Options{TTL: 10 * time.Minute})
		l := w.lock(c, "k")
		w.store.meddle(only(down, "leave"), nil)
		w.is(l.Release(bg), errDown)
		time.Sleep(time.Minute)
		begun := make(chan struct{})
		w.store.meddle(only(atFirst(func(context.Context, string) error {
			close(begun)
			time.Sleep(300 * time.Millisecond)
			return errDown
		}), "leave"), nil)
		<-begun
		ok(t, c.Close())
		w.free("k")
	})
}

func TestCloseClosesItsBackend(t *testing.T) {
	for how, end := range endings {
		runInWorld(t, how, func(t *testing.T, w *world) {
			p := &closing{probe: w.store}
			c := testclient.New(t, p, nil)
			w.release(w.lock(c, "k"))
			steps.Is(t, how, end(c), errDown)
			c.Close()
			steps.Same(t, "it was closed, times", p.closed, 1)
		})
	}
}

type closing struct {
	*probe
	closed int
}

func (p *closing) Close() error { p.closed++; return errDown }

// A logger that is slow still hears of everything.
func TestCloseWaitsForOnEvent(t *testing.T) {
	inWorld(t, func(w *world) {
		var called atomic.Int64
		slow := func(fencelock.Event) { time.Sleep(100 * time.Millisecond); called.Add(1) }
		c := w.client(&fencelock.Options{OnEvent: slow})
		w.release(w.lock(c, "a"))
		w.lock(c, "b")
		c.Close()
		steps.Same(t, "events of 5 were heard", called.Load(), 5)
	})
}

// A Client that holds nothing has no goroutine: it may be dropped.
func TestIdleClientHasNoGoroutine(t *testing.T) {
	inWorld(t, func(w *world) {
		before := goroutines()
		c := testclient.New(t, w.store, nil)
		most := 0
		for range 10 {
			l := w.lock(c, "k")
			most = max(most, goroutines())
			w.release(l)
		}
		if most = max(most, goroutines()); most > before {
			t.Errorf("%d goroutines, %d before", most, before)
		}
	})
}

// goroutines counts those of its bubble: timers of tests before may start others at any time.
func goroutines() int {
	b := make([]byte, 1<<20)
	all := b[:runtime.Stack(b, true)] // this one is the first
	own, rest, _ := bytes.Cut(all, []byte("\n"))
	bubble := own[bytes.Index(own, []byte("synctest bubble")):]
	return 1 + bytes.Count(rest, bytes.TrimSuffix(bubble, []byte(":")))
}
