package fencelock_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
)

func TestOneKeyAsTwoKindsIsErrKind(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.client(nil), w.client(nil)
		mutex := w.lock(a, "m")
		_, err := b.Semaphore("m", 3).Acquire(bg, 1)
		w.is(err, fencelock.ErrKind, driver.ErrKind)
		w.not(err, fencelock.ErrNotAcquired, fencelock.ErrUnavailable)
		w.is(errOf(a.Semaphore("m", 3).TryAcquire(bg, 1)), fencelock.ErrKind)
		_, err = a.Semaphore("m", 3).Acquire(mutex.Context(), 1, fencelock.Reentrant())
		w.is(err, fencelock.ErrKind)

		permit := w.got(a.Semaphore("s", 3).Acquire(bg, 1))
		for _, f := range []func(context.Context, string, ...fencelock.Option) (*fencelock.Lease, error){
			b.Lock, b.TryLock, b.RLock, b.TryRLock, a.Lock, a.TryLock,
		} {
			w.is(errOf(f(bg, "s")), fencelock.ErrKind)
		}
		w.is(errOf(a.Lock(permit.Context(), "s", fencelock.Reentrant())), fencelock.ErrKind)

		// Kinds are judged while somebody is in line; afterwards the key is anybody's.
		w.release(mutex)
		w.release(permit)
		w.release(w.got(a.Semaphore("m", 3).Acquire(bg, 1)))
		w.release(w.lock(b, "s"))
	})
}

func TestBadInputIsInvalidAndAsksNothing(t *testing.T) {
	const s, day = time.Second, 24 * time.Hour
	try := fencelock.Wait(0)
	nop := func(context.Context, *fencelock.Lease) error { t.Error("f ran"); return nil }
	each := func(errs ...error) error {
		for _, err := range errs {
			is(t, err, fencelock.ErrInvalid)
		}
		return errs[0]
	}
	opt := func(opts ...fencelock.Option) func(c *fencelock.Client) error {
		return func(c *fencelock.Client) error {
			return each(errOf(c.Lock(bg, "k", opts...)), errOf(c.Semaphore("k", 3).Acquire(bg, 1, opts...)),
				c.Do(bg, "k", nop, opts...), errOf(c.LockAll(bg, []string{"k"}, opts...)))
		}
	}
	acquire := func(size, n int64) func(c *fencelock.Client) error {
		return func(c *fencelock.Client) error {
			s := c.Semaphore("k", size)
			return each(errOf(s.Acquire(bg, n)), errOf(s.TryAcquire(bg, n)))
		}
	}
	key := func(key string) func(c *fencelock.Client) error {
		return func(c *fencelock.Client) error {
			return each(errOf(c.Lock(bg, key)), errOf(c.TryRLock(bg, key)), errOf(c.Semaphore(key, 3).Acquire(bg, 1)),
				errOf(c.LockAll(bg, []string{"a", key})), errOf(c.Line(bg, key)), c.Break(bg, key, 7, ""),
				errOf(c.Once(bg, key, time.Time{}, nop)))
		}
	}
	for name, f := range map[string]func(c *fencelock.Client) error{
		"empty key":             key(""),
		"key one byte too long": key(strings.Repeat("k", driver.MaxKey+1)),
		"key of a megabyte":     key(strings.Repeat("k", 1<<20)),
		"TTL zero":              opt(fencelock.TTL(0)),
		"TTL negative":          opt(fencelock.TTL(-s)),
		"TTL without a unit":    opt(fencelock.TTL(30)),
		"NoRenewal, too long":   opt(fencelock.NoRenewal(), fencelock.TTL(400*day)),
		"MaxHold zero":          opt(fencelock.MaxHold(0)),
		"MaxHold negative":      opt(fencelock.MaxHold(-s)),
		"MinHold negative":      opt(fencelock.MinHold(-s)),
		"MinHold too long":      opt(fencelock.MinHold(400 * day)),
		"Wait negative":         opt(fencelock.Wait(-1)),
		"Note too long":         opt(fencelock.Note(strings.Repeat("n", driver.MaxNote+1))),
		"Note with a zero byte": opt(fencelock.Note("a\x00b")),
		"Note that is no text":  opt(fencelock.Note("a\xffb")),
		"MinHold over MaxHold":  opt(fencelock.MinHold(2*s), fencelock.MaxHold(s)),
		"a try that waits": func(c *fencelock.Client) error {
			return each(errOf(c.TryLock(bg, "k", fencelock.Wait(1))), errOf(c.TryRLock(bg, "k", fencelock.Wait(s))),
				errOf(c.Semaphore("k", 1).TryAcquire(bg, 1, fencelock.Wait(s))))
		},
		"size zero":          acquire(0, 1),
		"size negative":      acquire(-1, 1),
		"size of a mutex":    acquire(driver.RW, 1),
		"size beyond":        acquire(1<<62, 1),
		"weight zero":        acquire(3, 0),
		"weight negative":    acquire(3, -1),
		"weight over size":   acquire(3, 4),
		"weight of infinity": acquire(3, 1<<63-1),
		"no keys":            func(c *fencelock.Client) error { return errOf(c.LockAll(bg, nil)) },
		"token zero":         func(c *fencelock.Client) error { return c.Break(bg, "k", 0, "") },
		"token negative":     func(c *fencelock.Client) error { return c.Break(bg, "k", -1, "") },
		"reason too long": func(c *fencelock.Client) error {
			return c.Break(bg, "k", 1, strings.Repeat("r", driver.MaxNote+1))
		},
		"Once with Reentrant": func(c *fencelock.Client) error {
			return errOf(c.Once(bg, "k", time.Time{}, nop, fencelock.Reentrant(), try))
		},
		"a slot that cannot be written": func(c *fencelock.Client) error {
			return each(errOf(c.Once(bg, "k", time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC), nop)),
				errOf(c.Once(bg, "k", time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC), nop)))
		},
	} {
		runInWorld(t, name, func(t *testing.T, w *world) {
			err := f(w.client(nil))
			w.is(err, fencelock.ErrInvalid)
			w.steps()
			if err == nil {
				return
			}
			w.not(err, fencelock.ErrNotAcquired, fencelock.ErrUnavailable, fencelock.ErrLost)
			if text := err.Error(); len(text) > 600 || strings.Contains(text, "  ") || strings.Contains(text, " : ") {
				t.Errorf("text: %q", text)
			}
		})
	}
}

func TestKeysMayHoldAnyByte(t *testing.T) {
	keys := []string{
		"a", "A", " a", "a ", "a\x00", "a\n", "a/b", "a:b", "a{b}", "{a}b", "a}b{", "a%b", "a_b", `a\b`, "a'b", `a"b`,
		"a\u0301", "\u00e1", "а", "\xff\xfe", "\x00", strings.Repeat("k", driver.MaxKey), "锁", "é", "../a", "a*", "a?",
	}
	inWorld(t, func(w *world) {
		a, b := w.client(nil), w.client(nil)
		seen := map[string]bool{}
		var leases []*fencelock.Lease
		for _, k := range keys {
			if seen[k] {
				continue
			}
			seen[k] = true
			l := w.lock(a, k)
			leases = append(leases, l)
			if l.Key() != k {
				t.Errorf("key %q became %q", k, l.Key())
			}
			_, err := b.TryLock(bg, k)
			if h := w.held(err); h.Key != k {
				t.Errorf("key %q became %q", k, h.Key)
			}
			if line, err := b.Line(bg, k); err != nil || line.Key != k || len(line.Claims()) != 1 {
				t.Errorf("line of %q: %+v, %v", k, line, err)
			}
		}
		for _, l := range leases {
			w.release(l)
		}
	})
}
