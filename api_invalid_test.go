package fencelock_test

import (
	"context"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/limit"
)

//verify:fault The API, on all stores | one key as two kinds of lock; a semaphore of two sizes
func TestOneKeyAsTwoKindsIsErrKind(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.client(nil), w.client(nil)
		mutex := w.lock(a, "m")
		_, err := b.Acquire(bg, "m", 1, 3)
		w.is(err, fencelock.ErrKind, driver.ErrKind)
		w.not(err, fencelock.ErrNotAcquired, fencelock.ErrUnavailable)
		w.is(errOf(a.Acquire(bg, "m", 1, 3, fencelock.Wait(0))), fencelock.ErrKind)
		_, err = a.Acquire(mutex.Context(), "m", 1, 3, fencelock.Reentrant())
		w.is(err, fencelock.ErrKind)

		permit := w.got(a.Acquire(bg, "s", 1, 3))
		for _, f := range []func(context.Context, string, ...fencelock.Option) (*fencelock.Lease, error){
			b.Lock, b.TryLock, b.RLock, a.Lock, a.TryLock,
		} {
			w.is(errOf(f(bg, "s")), fencelock.ErrKind)
		}
		w.is(errOf(a.Lock(permit.Context(), "s", fencelock.Reentrant())), fencelock.ErrKind)

		// Kinds are judged while somebody is in line; afterwards the key is anybody's.
		w.release(mutex)
		w.release(permit)
		w.release(w.got(a.Acquire(bg, "m", 1, 3)))
		w.release(w.lock(b, "s"))
	})
}

type badCall = func(t *testing.T, c *fencelock.Client) error

// badOptions are ErrInvalid to every call.
var badOptions = map[string][]fencelock.Option{
	"TTL zero":              {fencelock.TTL(0)},
	"TTL without a unit":    {fencelock.TTL(30)},
	"NoRenewal, too long":   {fencelock.NoRenewal(), fencelock.TTL(400 * 24 * time.Hour)},
	"MaxHold zero":          {fencelock.MaxHold(0)},
	"MinHold negative":      {fencelock.MinHold(-time.Second)},
	"MinHold too long":      {fencelock.MinHold(400 * 24 * time.Hour)},
	"Wait negative":         {fencelock.Wait(-1)},
	"Note too long":         {fencelock.Note(strings.Repeat("n", limit.Note+1))},
	"Note with a zero byte": {fencelock.Note("a\x00b")},
	"Note that is no text":  {fencelock.Note("a\xffb")},
	"Progress zero":         {fencelock.Progress(0)},
	"Progress, NoRenewal":   {fencelock.Progress(time.Minute), fencelock.NoRenewal()},
	"Progress, MaxHold":     {fencelock.Progress(time.Minute), fencelock.MaxHold(time.Minute)},
	"Progress, renewals":    {fencelock.Progress(9 * time.Second)},
	"MinHold over MaxHold":  {fencelock.MinHold(2 * time.Second), fencelock.MaxHold(time.Second)},
}

// badCalls are those that no option is to blame for.
var badCalls = map[string]badCall{
	"empty key":             withKey(""),
	"key one byte too long": withKey(strings.Repeat("k", limit.Key+1)),
	"key of a megabyte":     withKey(strings.Repeat("k", 1<<20)),
	"a try that waits": func(t *testing.T, c *fencelock.Client) error {
		return invalid(t, errOf(c.TryLock(bg, "k", fencelock.Wait(1))), errOf(c.TryLock(bg, "k", fencelock.Wait(time.Second))))
	},
	"size zero":        acquiring(0, 1),
	"size of a mutex":  acquiring(driver.RW, 1),
	"weight zero":      acquiring(3, 0),
	"weight over size": acquiring(3, 4),
	"no keys":          func(t *testing.T, c *fencelock.Client) error { return errOf(c.LockAll(bg, nil)) },
	"token zero": func(t *testing.T, c *fencelock.Client) error {
		return c.Break(bg, "k", 0, fencelock.Break{})
	},
	"reason too long": func(t *testing.T, c *fencelock.Client) error {
		return c.Break(bg, "k", 1, fencelock.Break{Reason: strings.Repeat("r", limit.Note+1)})
	},
	"Once with Reentrant": func(t *testing.T, c *fencelock.Client) error {
		return errOf(c.Once(bg, "k", time.Time{}, neverRuns(t), fencelock.Reentrant(), fencelock.Wait(0)))
	},
	"a slot that cannot be written": func(t *testing.T, c *fencelock.Client) error {
		return invalid(t, errOf(c.Once(bg, "k", time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC), neverRuns(t))),
			errOf(c.Once(bg, "k", time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC), neverRuns(t))))
	},
}

// invalid checks that all of several calls are ErrInvalid, and returns the first error.
func invalid(t *testing.T, errs ...error) error {
	for _, err := range errs {
		is(t, err, fencelock.ErrInvalid)
	}
	return errs[0]
}

func neverRuns(t *testing.T) func(context.Context, *fencelock.Lease) error {
	return func(context.Context, *fencelock.Lease) error { t.Error("f ran"); return nil }
}

func withOptions(opts ...fencelock.Option) badCall {
	return func(t *testing.T, c *fencelock.Client) error {
		return invalid(t, errOf(c.Lock(bg, "k", opts...)), errOf(c.Acquire(bg, "k", 1, 3, opts...)),
			c.Do(bg, "k", neverRuns(t), opts...), errOf(c.LockAll(bg, []string{"k"}, opts...)))
	}
}
func acquiring(size, n int64) badCall {
	return func(t *testing.T, c *fencelock.Client) error {
		return invalid(t, errOf(c.Acquire(bg, "k", n, size)), errOf(c.Acquire(bg, "k", n, size, fencelock.Wait(0))))
	}
}
func withKey(key string) badCall {
	return func(t *testing.T, c *fencelock.Client) error {
		return invalid(t, errOf(c.Lock(bg, key)), errOf(c.RLock(bg, key, fencelock.Wait(0))), errOf(c.Acquire(bg, key, 1, 3)),
			errOf(c.LockAll(bg, []string{"a", key})), errOf(c.Line(bg, key)), c.Break(bg, key, 7, fencelock.Break{}),
			errOf(c.Once(bg, key, time.Time{}, neverRuns(t))))
	}
}

//verify:fault The API, on all stores | keys: empty, of a megabyte, binary, with each separator, similar
//verify:fault The API, on all stores | leases of zero, negative, of a nanosecond, huge
//verify:fault Security | limits on keys, notes, leases
func TestBadInputIsInvalidAndAsksNothing(t *testing.T) {
	calls := maps.Clone(badCalls)
	for name, opts := range badOptions {
		calls[name] = withOptions(opts...)
	}
	for name, f := range calls {
		runInWorld(t, name, func(t *testing.T, w *world) {
			err := f(t, w.client(nil))
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
