package fencelock_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testclient"
)

func (w *world) lockAll(c *fencelock.Client, ctx context.Context, keys []string, opts ...fencelock.Option) fencelock.MultiLease {
	w.Helper()
	m, err := c.LockAll(ctx, keys, opts...)
	must(w, err)
	return m
}

// Keys are sorted by their bytes, forever: programs of today and of tomorrow take them in one order.
func TestLockAllTakesKeysInTheOrderOfTheirBytesAndMergesDoubles(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client(nil)
		given := []string{"b", "a", "é", "B", "b", "\xff", "\x00", "a/10", "a/2", "锁", "a"}
		want := []string{"\x00", "B", "a", "a/10", "a/2", "b", "é", "锁", "\xff"}
		m := w.lockAll(c, bg, given)
		var entered, held []string
		for _, claim := range w.store.entered() {
			entered = append(entered, claim.Key)
		}
		for _, l := range m {
			held = append(held, l.Key())
			if fencelock.Held(m.Context(), l.Key()) != l || l.Err() != nil {
				t.Error(l)
			}
		}
		if !slices.Equal(entered, want) || !slices.Equal(held, want) {
			t.Errorf("entered %q, held %q, want %q", entered, held, want)
		}
		if given[0] != "b" || fencelock.Held(m.Context(), "c") != nil {
			t.Error("the caller's slice was changed, or a lease invented")
		}
		ok(t, m.Err())
		ok(t, m.Release(bg))
		w.is(m.Err(), fencelock.ErrReleased)
		ok(t, m.Release(bg))
	})
}

func TestLockAllTakesAllOrNone(t *testing.T) {
	for name, c := range map[string]struct {
		opts []fencelock.Option
		is   []error
	}{
		"a try":   {[]fencelock.Option{fencelock.Wait(0)}, []error{fencelock.ErrNotAcquired}},
		"Wait":    {[]fencelock.Option{fencelock.Wait(time.Second)}, []error{fencelock.ErrNotAcquired}},
		"invalid": {[]fencelock.Option{fencelock.TTL(-1)}, []error{fencelock.ErrInvalid}},
	} {
		runInWorld(t, name, func(t *testing.T, w *world) {
			a, b := w.client(nil), w.client(nil)
			l := w.lock(a, "b")
			w.is(errOf(b.LockAll(bg, []string{"a", "b", "c"}, c.opts...)), c.is...)
			w.free("a")
			w.free("c")
			w.release(l)
		})
	}
	runInWorld(t, "ctx ends in the middle", func(t *testing.T, w *world) {
		a, b := w.client(nil), w.client(nil)
		l := w.lock(a, "b")
		w.store.meddle(only(takes(100*time.Millisecond), "leave"), nil)
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		start := time.Now()
		w.is(errOf(b.LockAll(ctx, []string{"a", "b", "c"})), context.DeadlineExceeded, fencelock.ErrNotAcquired)
		took(t, start, time.Second)
		time.Sleep(100 * time.Millisecond)
		w.free("a")
		w.release(l)
	})
}

// An earlier key is lost while a later one is waited for.
func TestLockAllReportsALoss(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.client(nil), w.client(nil)
		l := w.lock(a, "b")
		time.AfterFunc(time.Second, func() {
			line := w.line(a, "a")
			ok(t, testclient.New(t, w.store.Store, nil).Break(bg, "a", line.Claims[0].Token, fencelock.Break{Reason: "deploy"}))
		})
		start := time.Now()
		_, err := b.LockAll(bg, []string{"a", "b", "c"})
		w.is(err, fencelock.ErrLost, fencelock.ErrBroken, fencelock.ErrNotAcquired)
		took(t, start, time.Second)
		w.release(l)
		w.free("b")
	})
}

func TestWaitBoundsTheWholeOfLockAll(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.client(nil), w.client(nil)
		la, lb, lc := w.lock(a, "a"), w.lock(a, "b"), w.lock(a, "c")
		time.AfterFunc(2*time.Second, func() { la.Release(bg) })
		time.AfterFunc(4*time.Second, func() { lb.Release(bg) })
		time.AfterFunc(6*time.Second, func() { lc.Release(bg) })
		start := time.Now()
		_, err := b.LockAll(bg, []string{"a", "b", "c"}, fencelock.Wait(5*time.Second))
		steps.Same(t, "the key in the way", w.held(err).Key, "c")
		took(t, start, 5*time.Second)
		time.Sleep(2 * time.Second)
		m := w.lockAll(b, bg, []string{"a", "b", "c"}, fencelock.Wait(5*time.Second))
		time.Sleep(time.Minute)
		ok(t, m.Err())
		ok(t, m.Release(bg))
	})
}

// Two calls that each hold something and then ask for more can wait for each other.
// A call for a key that sorts before one that its context holds is refused at once.
func TestNestedLockAllMustGoUp(t *testing.T) {
	inWorld(t, func(w *world) {
		c, other := w.client(nil), w.client(nil)
		m := w.lockAll(c, bg, []string{"d", "f"})
		w.store.taken()
		for _, keys := range [][]string{{"a"}, {"d"}, {"e"}, {"f"}, {"g", "e"}, {"g", "f"}} {
			_, err := c.LockAll(m.Context(), keys)
			w.is(err, fencelock.ErrDeadlock)
			w.not(err, fencelock.ErrNotAcquired)
		}
		w.steps() // nothing was taken on the way
		up := w.lockAll(c, m.Context(), []string{"z", "g"})
		if fencelock.Held(up.Context(), "d") != fencelock.Held(m.Context(), "d") || fencelock.Held(up.Context(), "z") == nil {
			t.Error("the context does not carry all")
		}
		// Other Clients are other stores: their keys have an order of their own.
		elsewhere := w.lockAll(other, up.Context(), []string{"a"})
		for _, x := range []fencelock.MultiLease{elsewhere, up, m} {
			ok(t, x.Release(bg))
		}
		// What was released binds nobody.
		again := w.lockAll(c, context.WithoutCancel(up.Context()), []string{"a"})
		ok(t, again.Release(bg))
	})
}

// Sharing does not wait, so keys that ctx holds may come again, with new ones above.
func TestNestedLockAllSharesWithReentrant(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client(nil)
		m := w.lockAll(c, bg, []string{"a", "b"})
		in := w.lockAll(c, m.Context(), []string{"c", "b", "a"}, fencelock.Reentrant())
		for _, k := range []string{"a", "b"} {
			if fencelock.Held(in.Context(), k) == fencelock.Held(m.Context(), k) || fencelock.Held(in.Context(), k).Token() != fencelock.Held(m.Context(), k).Token() {
				t.Errorf("%s is not shared", k)
			}
		}
		w.is(errOf(c.LockAll(m.Context(), []string{"0", "a"}, fencelock.Reentrant())), fencelock.ErrDeadlock)
		ok(t, m.Release(bg))
		w.taken("a")
		ok(t, in.Release(bg))
		w.free("a")
	})
}

func TestContextOfLockAllEndsWithAnyOfThem(t *testing.T) {
	for i, key := range []string{"a", "b", "c"} {
		runInWorld(t, key, func(t *testing.T, w *world) {
			c := w.client(nil)
			m := w.lockAll(c, bg, []string{"a", "b", "c"})
			steps.Well(t, "already over", m.Context().Err())
			l := m[i]
			must(t, c.Break(bg, key, l.Token(), fencelock.Break{Reason: "deploy"}))
			<-m.Context().Done()
			w.is(context.Cause(m.Context()), fencelock.ErrBroken)
			steps.Same(t, "the cause", context.Cause(m.Context()).Error(), l.Err().Error())
			w.is(m.Err(), fencelock.ErrBroken)
			for j, other := range m {
				if j != i && other.Err() != nil {
					t.Errorf("%v ended as well", other)
				}
			}
			w.is(m.Release(bg), fencelock.ErrLost)
			for _, k := range []string{"a", "b", "c"} {
				w.free(k)
			}
		})
	}
}

// A job takes two keys for an hour each, and another process has the second. Nothing runs, so the first
// key is free for the next try.
func TestLockAllThatFailsKeepsNoMinHold(t *testing.T) {
	inWorld(t, func(w *world) {
		c, other := w.client(nil), w.client(nil)
		held := w.lock(other, "b")
		w.is(errOf(c.LockAll(bg, []string{"a", "b"}, fencelock.Wait(0), fencelock.MinHold(time.Hour))), fencelock.ErrNotAcquired)
		ok(t, held.Release(bg))
		m := w.lockAll(other, bg, []string{"a", "b"}, fencelock.Wait(0), fencelock.MinHold(time.Hour))
		ok(t, m.Release(bg))
		w.is(errOf(c.TryLock(bg, "a")), fencelock.ErrNotAcquired)
	})
}
