package fencelock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/fence"
)

func TestRefusalSaysWhoIsInTheWay(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.client(&fencelock.Options{Owner: "web-3/812", TTL: 10 * time.Second})
		b := w.client(nil)
		l := w.lock(a, "orders/42", fencelock.Note("reindex"))
		since := time.Now()
		time.Sleep(2 * time.Second)

		_, err := b.TryLock(bg, "orders/42")
		h := w.held(err)
		want := fencelock.HeldError{
			Key: "orders/42", Owner: "web-3/812", Note: "reindex",
			Token: l.Token(), Since: since, Left: 8 * time.Second, Ahead: 1,
		}
		if h.Since.Equal(since) {
			want.Since = h.Since // monotonic readings aside
		}
		if *h != want {
			t.Errorf("got %+v, want %+v", *h, want)
		}
		w.release(l)
	})
}

func TestHeldErrorText(t *testing.T) {
	inWorld(t, func(w *world) {
		today := time.Now().Local().Truncate(24 * time.Hour).Add(10 * time.Second)
		for _, c := range []struct {
			h    fencelock.HeldError
			want string
		}{
			{fencelock.HeldError{Key: "k"}, "k is held by somebody else"},
			{fencelock.HeldError{Key: "k", Owner: "o"}, "k is held by o"},
			{fencelock.HeldError{Key: "k", Owner: "o", Ahead: 1}, "k is held by o, 1 ahead"},
			{
				fencelock.HeldError{Key: "orders/42", Owner: "web-3/812", Note: "note", Since: today, Ahead: 2},
				"orders/42 is held by web-3/812 (note) since " + today.Format("15:04:05") + ", 2 ahead",
			},
			{
				fencelock.HeldError{Key: "k", Owner: "o", Since: time.Date(1999, 3, 4, 5, 6, 7, 0, time.Local)},
				"k is held by o since 1999-03-04 05:06:07",
			},
		} {
			if got := c.h.Error(); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		}
	})
}

// Owner and note come from others: they must not move a reader's cursor, forge
// lines of a log, or turn the direction of text around.
func TestErrorTextEscapesWhatOthersWrote(t *testing.T) {
	evil := "\x1b[31mx\r\ny\x00\u202e\u2028\xff"
	safe := func(s string) {
		t.Helper()
		if strings.ContainsAny(s, "\x1b\r\n\x00\u202e\u2028\xff") {
			t.Errorf("unescaped: %q", s)
		}
	}
	h := &fencelock.HeldError{Key: evil, Owner: evil, Note: evil}
	safe(h.Error())
	if want := `\x1b[31mx\x0d\x0ay\x00\u202e\u2028\xff`; !strings.Contains(h.Error(), "held by "+want+" ("+want+")") {
		t.Errorf("got %s", h.Error())
	}
	long := &fencelock.HeldError{Key: strings.Repeat("k", 1000), Owner: strings.Repeat("o", 1<<20)}
	if n := len(long.Error()); n > 500 {
		t.Errorf("the text has %d bytes", n)
	}

	inWorld(t, func(w *world) {
		a := w.client(&fencelock.Options{Owner: evil})
		l := w.lock(a, evil, fencelock.Note(evil))
		_, err := w.client(nil).TryLock(bg, evil)
		w.held(err)
		safe(err.Error())
		if err := a.Break(bg, evil, l.Token(), evil); err != nil {
			t.Fatal(err)
		}
		safe(l.Err().Error())
		safe(l.Release(bg).Error())
		safe(context.Cause(l.Context()).Error())
		safe(l.String())
	})
}

// Whatever way a call fails because the lock is taken, it says so in the same way.
func TestEveryRefusalIsNotAcquiredWithHeldError(t *testing.T) {
	cause := errors.New("the user went away")
	for name, try := range map[string]func(own, other *fencelock.Client) error{
		"TryLock, other process": func(_, other *fencelock.Client) error {
			_, err := other.TryLock(bg, "k")
			return err
		},
		"TryLock, this process": func(own, _ *fencelock.Client) error {
			_, err := own.TryLock(bg, "k")
			return err
		},
		"TryLock with Wait(0)": func(own, _ *fencelock.Client) error {
			_, err := own.TryLock(bg, "k", fencelock.Wait(0))
			return err
		},
		"Lock with Wait(0)": func(_, other *fencelock.Client) error {
			_, err := other.Lock(bg, "k", fencelock.Wait(0))
			return err
		},
		"Wait in the store's line": func(_, other *fencelock.Client) error {
			_, err := other.Lock(bg, "k", fencelock.Wait(time.Second))
			return err
		},
		"Wait in this process": func(own, _ *fencelock.Client) error {
			_, err := own.Lock(bg, "k", fencelock.Wait(time.Second))
			return err
		},
		"Wait past the gate": func(own, _ *fencelock.Client) error {
			_, err := own.Lock(bg, "k", fencelock.Wait(time.Second), fencelock.Note("n"))
			return err
		},
		"FixedLease": func(_, other *fencelock.Client) error {
			_, err := other.Lock(bg, "k", fencelock.Wait(time.Second), fencelock.FixedLease(time.Hour))
			return err
		},
		"FixedLease, try": func(_, other *fencelock.Client) error {
			_, err := other.TryLock(bg, "k", fencelock.FixedLease(time.Hour))
			return err
		},
		"TryRLock": func(own, _ *fencelock.Client) error {
			_, err := own.TryRLock(bg, "k")
			return err
		},
		"RLock": func(_, other *fencelock.Client) error {
			_, err := other.RLock(bg, "k", fencelock.Wait(time.Second))
			return err
		},
		"Do": func(_, other *fencelock.Client) error {
			return other.Do(bg, "k", func(context.Context, *fencelock.Lease) error {
				t.Error("f ran")
				return nil
			}, fencelock.Wait(time.Second))
		},
		"Once": func(_, other *fencelock.Client) error {
			ran, err := other.Once(bg, "k", time.Time{}, func(context.Context, *fencelock.Lease) error { return nil }, fencelock.Wait(0))
			if ran {
				t.Error("ran")
			}
			return err
		},
		"LockAll": func(_, other *fencelock.Client) error {
			_, err := other.LockAll(bg, []string{"a", "k", "z"}, fencelock.Wait(time.Second))
			return err
		},
		"ctx cancelled in the store's line": func(_, other *fencelock.Client) error {
			ctx, cancel := context.WithCancelCause(bg)
			time.AfterFunc(time.Second, func() { cancel(cause) })
			_, err := other.Lock(ctx, "k")
			is(t, err, context.Canceled, cause)
			return err
		},
		"ctx cancelled in this process": func(own, _ *fencelock.Client) error {
			ctx, cancel := context.WithCancelCause(bg)
			time.AfterFunc(time.Second, func() { cancel(cause) })
			_, err := own.Lock(ctx, "k")
			is(t, err, context.Canceled, cause)
			return err
		},
		"deadline of ctx in the store's line": func(_, other *fencelock.Client) error {
			ctx, cancel := context.WithTimeoutCause(bg, time.Second, cause)
			defer cancel()
			_, err := other.Lock(ctx, "k")
			is(t, err, context.DeadlineExceeded, cause)
			return err
		},
		"deadline of ctx in this process": func(own, _ *fencelock.Client) error {
			ctx, cancel := context.WithTimeoutCause(bg, time.Second, cause)
			defer cancel()
			_, err := own.Lock(ctx, "k")
			is(t, err, context.DeadlineExceeded, cause)
			return err
		},
		"ctx cancelled while a reader waits": func(own, _ *fencelock.Client) error {
			ctx, cancel := context.WithCancelCause(bg)
			time.AfterFunc(time.Second, func() { cancel(cause) })
			_, err := own.RLock(ctx, "k")
			is(t, err, context.Canceled, cause)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				own := w.client(&fencelock.Options{Owner: "holder"})
				other := w.client(&fencelock.Options{Owner: "other"})
				l := w.lock(own, "k")
				err := try(own, other)
				h := w.held(err)
				if h.Key != "k" || h.Owner != "holder" || h.Token != l.Token() || h.Ahead < 1 {
					t.Errorf("got %+v", h)
				}
				if !strings.Contains(err.Error(), "k is held by holder") {
					t.Errorf("text: %v", err)
				}
				w.release(l)
				time.Sleep(3 * time.Second) // what is cleaned up behind
				w.free("k")
			})
		})
	}
}

// A backend that cannot queue refuses again and again; in the end that is a refusal
// like any other.
func TestWaitAtBackendThatCannotQueueEndsAsRefusal(t *testing.T) {
	inWorld(t, func(w *world) {
		w.store.info.Fair = false
		a, b := w.client(&fencelock.Options{Owner: "a"}), w.client(nil)
		l := w.lock(a, "k")
		for _, opts := range [][]fencelock.Option{
			{fencelock.Wait(time.Second)},
			{fencelock.Wait(time.Second), fencelock.FixedLease(time.Minute)},
		} {
			_, err := b.Lock(bg, "k", opts...)
			if h := w.held(err); h.Owner != "a" {
				t.Errorf("got %+v", h)
			}
		}
		w.release(l)
	})
}

// The head that a waiting gate knows of changes: a try must not be told of a
// holder that left long ago.
func TestTryBesideAWaiterNamesThePresentHolder(t *testing.T) {
	inWorld(t, func(w *world) {
		first := w.client(&fencelock.Options{Owner: "first"})
		second := w.client(&fencelock.Options{Owner: "second"})
		third := w.client(&fencelock.Options{Owner: "third"})
		l1 := w.lock(first, "k")
		k2 := w.begin(func() (*fencelock.Lease, error) { return second.Lock(bg, "k") })
		k3 := w.begin(func() (*fencelock.Lease, error) { return third.Lock(bg, "k") })
		w.release(l1)
		l2, err := k2.wait()
		w.got(l2, err)
		time.Sleep(3 * time.Second) // the fallback of a second, and more

		_, err = third.TryLock(bg, "k")
		if h := w.held(err); h.Owner != "second" || h.Token != l2.Token() {
			t.Errorf("in the way is %+v, want second", h)
		}
		w.release(l2)
		w.release(w.got(k3.wait()))
	})
}

func TestContextThatHasEndedAsksNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client(nil)
		cause := errors.New("too late")
		ctx, cancel := context.WithCancelCause(bg)
		cancel(cause)
		_, err := c.Lock(ctx, "k")
		w.is(err, context.Canceled, cause)
		_, err = c.TryLock(ctx, "k")
		w.is(err, context.Canceled, cause)
		_, err = c.Semaphore("s", 3).Acquire(ctx, 1)
		w.is(err, context.Canceled, cause)
		_, err = c.LockAll(ctx, []string{"a", "b"})
		w.is(err, context.Canceled, cause)
		_, err = c.Once(ctx, "k", time.Time{}, nil)
		w.is(err, context.Canceled, cause)
		err = c.Do(ctx, "k", func(context.Context, *fencelock.Lease) error { t.Error("f ran"); return nil })
		w.is(err, context.Canceled, cause)
		w.not(err, fencelock.ErrUnavailable)
		w.steps()
	})
}

// "Nobody answered" and "somebody else has it" are two different things: only the
// second says anything about the lock.
func TestNoAnswerIsUnavailableAndNeverNotAcquired(t *testing.T) {
	for name, fault := range map[string]func(context.Context, string) error{"down": down, "silent": silent} {
		for how, try := range map[string]func(c *fencelock.Client) error{
			"Wait": func(c *fencelock.Client) error {
				_, err := c.Lock(bg, "k", fencelock.Wait(3*time.Second))
				return err
			},
			"ctx": func(c *fencelock.Client) error {
				ctx, cancel := context.WithTimeout(bg, 3*time.Second)
				defer cancel()
				_, err := c.Lock(ctx, "k")
				is(t, err, context.DeadlineExceeded)
				return err
			},
			"try": func(c *fencelock.Client) error {
				_, err := c.TryLock(bg, "k")
				return err
			},
			"try with ctx": func(c *fencelock.Client) error {
				ctx, cancel := context.WithTimeout(bg, 3*time.Second)
				defer cancel()
				_, err := c.TryLock(ctx, "k")
				is(t, err, context.DeadlineExceeded)
				return err
			},
			"try of a FixedLease of hours": func(c *fencelock.Client) error {
				_, err := c.TryLock(bg, "k", fencelock.FixedLease(6*time.Hour))
				return err
			},
			"RLock": func(c *fencelock.Client) error {
				_, err := c.RLock(bg, "k", fencelock.Wait(3*time.Second))
				return err
			},
			"Line": func(c *fencelock.Client) error {
				_, err := c.Line(bg, "k")
				return err
			},
			"Break": func(c *fencelock.Client) error { return c.Break(bg, "k", 1, "") },
		} {
			t.Run(name+"/"+how, func(t *testing.T) {
				inWorld(t, func(w *world) {
					w.store.meddle(fault, nil)
					c := w.client(&fencelock.Options{TTL: 10 * time.Second})
					start := time.Now()
					err := try(c)
					w.is(err, fencelock.ErrUnavailable)
					w.not(err, fencelock.ErrNotAcquired, fencelock.ErrLost)
					if name == "down" {
						w.is(err, errDown)
					}
					if took := time.Since(start); took > 14*time.Second {
						t.Errorf("took %v", took)
					}
				})
			})
		}
	}
}

// The second goroutine of a process has not asked the store itself. It is told the
// same as the first.
func TestNoAnswerIsUnavailableAlsoBehindTheFront(t *testing.T) {
	for name, fault := range map[string]func(context.Context, string) error{"down": down, "silent": silent} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.store.meddle(fault, nil)
				c := w.client(&fencelock.Options{TTL: 10 * time.Second})
				ctx, cancel := context.WithCancel(bg)
				front := w.begin(func() (*fencelock.Lease, error) { return c.Lock(ctx, "k") })
				time.Sleep(time.Second)

				_, err := c.Lock(bg, "k", fencelock.Wait(2*time.Second))
				w.is(err, fencelock.ErrUnavailable)
				w.not(err, fencelock.ErrNotAcquired)

				short, end := context.WithTimeout(bg, 2*time.Second)
				_, err = c.Lock(short, "k")
				w.is(err, fencelock.ErrUnavailable, context.DeadlineExceeded)
				w.not(err, fencelock.ErrNotAcquired)
				end()

				cancel()
				_, err = front.wait()
				w.is(err, fencelock.ErrUnavailable, context.Canceled)
			})
		})
	}
}

// The front waits without bound; a try behind it must not.
func TestTryBehindAFrontWithoutAnswerEndsAfterOneLease(t *testing.T) {
	inWorld(t, func(w *world) {
		w.store.meddle(down, nil)
		c := w.client(&fencelock.Options{TTL: 10 * time.Second})
		ctx, cancel := context.WithCancel(bg)
		front := w.begin(func() (*fencelock.Lease, error) { return c.Lock(ctx, "k") })

		start := time.Now()
		try := w.begin(func() (*fencelock.Lease, error) { return c.TryLock(bg, "k") })
		time.Sleep(11 * time.Second)
		if !try.over() {
			t.Errorf("the try still waits after %v", time.Since(start))
		} else {
			w.is(try.err, fencelock.ErrUnavailable, errDown)
			w.not(try.err, fencelock.ErrNotAcquired)
		}
		cancel()
		front.wait()
		try.wait()
	})
}

// A backend that somebody else closed will not answer later: waiting for it would
// be waiting for ever.
func TestClosedBackendEndsTheCall(t *testing.T) {
	inWorld(t, func(w *world) {
		w.store.meddle(func(context.Context, string) error { return driver.ErrClosed }, nil)
		c := w.client(nil)
		k := w.begin(func() (*fencelock.Lease, error) { return c.Lock(bg, "k", fencelock.Wait(time.Hour)) })
		if !k.over() {
			t.Error("the call still waits for a closed backend")
		}
		_, err := k.wait()
		w.is(err, fencelock.ErrClosed, driver.ErrClosed)
		w.not(err, fencelock.ErrNotAcquired, fencelock.ErrUnavailable)
	})
}

func TestSentinelsAreDistinct(t *testing.T) {
	losses := []error{fencelock.ErrExpired, fencelock.ErrBroken, fencelock.ErrMaxHold, fencelock.ErrClosed}
	all := append([]error{
		fencelock.ErrNotAcquired, fencelock.ErrUnavailable, fencelock.ErrReleased,
		fencelock.ErrDeadlock, fencelock.ErrKind, fencelock.ErrInvalid,
	}, losses...)
	for i, a := range all {
		for j, b := range all {
			if errors.Is(a, b) != (i == j) {
				t.Errorf("errors.Is(%v, %v) is %v", a, b, i != j)
			}
		}
		not(t, fencelock.ErrLost, a)
	}
	for _, l := range losses {
		is(t, l, fencelock.ErrLost)
	}
	not(t, fencelock.ErrReleased, fencelock.ErrLost)
	if s := (&fencelock.HeldError{}); !errors.Is(s, fencelock.ErrNotAcquired) || errors.Is(s, fencelock.ErrLost) {
		t.Error("a HeldError matches ErrNotAcquired, and no more")
	}
}

func TestOneKeyAsTwoKindsIsErrKind(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.client(nil), w.client(nil)
		mutex := w.lock(a, "m")
		_, err := b.Semaphore("m", 3).Acquire(bg, 1)
		w.is(err, fencelock.ErrKind, driver.ErrKind)
		w.not(err, fencelock.ErrNotAcquired, fencelock.ErrUnavailable)
		_, err = a.Semaphore("m", 3).TryAcquire(bg, 1)
		w.is(err, fencelock.ErrKind)
		_, err = a.Semaphore("m", 3).Acquire(mutex.Context(), 1, fencelock.Reentrant())
		w.is(err, fencelock.ErrKind)

		permit := w.got(a.Semaphore("s", 3).Acquire(bg, 1))
		for _, f := range []func(context.Context, string, ...fencelock.Option) (*fencelock.Lease, error){
			b.Lock, b.TryLock, b.RLock, b.TryRLock, a.Lock, a.TryLock,
		} {
			_, err := f(bg, "s")
			w.is(err, fencelock.ErrKind)
		}
		_, err = a.Lock(permit.Context(), "s", fencelock.Reentrant())
		w.is(err, fencelock.ErrKind)

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
	opt := func(opts ...fencelock.Option) func(c *fencelock.Client) error {
		return func(c *fencelock.Client) error {
			_, err := c.Lock(bg, "k", opts...)
			_, err2 := c.Semaphore("k", 3).Acquire(bg, 1, opts...)
			err3 := c.Do(bg, "k", nop, opts...)
			_, err4 := c.LockAll(bg, []string{"k"}, opts...)
			for _, e := range []error{err2, err3, err4} {
				is(t, e, fencelock.ErrInvalid)
			}
			return err
		}
	}
	acquire := func(size, n int64) func(c *fencelock.Client) error {
		return func(c *fencelock.Client) error {
			_, err := c.Semaphore("k", size).Acquire(bg, n)
			_, err2 := c.Semaphore("k", size).TryAcquire(bg, n)
			is(t, err2, fencelock.ErrInvalid)
			return err
		}
	}
	key := func(key string) func(c *fencelock.Client) error {
		return func(c *fencelock.Client) error {
			_, err := c.Lock(bg, key)
			_, err1 := c.TryRLock(bg, key)
			_, err2 := c.Semaphore(key, 3).Acquire(bg, 1)
			_, err3 := c.LockAll(bg, []string{"a", key})
			_, err4 := c.Line(bg, key)
			err5 := c.Break(bg, key, 7, "")
			_, err6 := c.Once(bg, key, time.Time{}, nop)
			for _, e := range []error{err1, err2, err3, err4, err5, err6} {
				is(t, e, fencelock.ErrInvalid)
			}
			return err
		}
	}
	for name, f := range map[string]func(c *fencelock.Client) error{
		"empty key":               key(""),
		"key one byte too long":   key(strings.Repeat("k", driver.MaxKey+1)),
		"key of a megabyte":       key(strings.Repeat("k", 1<<20)),
		"TTL zero":                opt(fencelock.TTL(0)),
		"TTL negative":            opt(fencelock.TTL(-s)),
		"TTL without a unit":      opt(fencelock.TTL(30)),
		"FixedLease zero":         opt(fencelock.FixedLease(0)),
		"FixedLease negative":     opt(fencelock.FixedLease(-1)),
		"FixedLease too short":    opt(fencelock.FixedLease(1)),
		"FixedLease too long":     opt(fencelock.FixedLease(400 * day)),
		"MaxHold zero":            opt(fencelock.MaxHold(0)),
		"MaxHold negative":        opt(fencelock.MaxHold(-s)),
		"MinHold negative":        opt(fencelock.MinHold(-s)),
		"MinHold too long":        opt(fencelock.MinHold(400 * day)),
		"Wait negative":           opt(fencelock.Wait(-1)),
		"Note too long":           opt(fencelock.Note(strings.Repeat("n", driver.MaxNote+1))),
		"FixedLease and TTL":      opt(fencelock.FixedLease(s), fencelock.TTL(s)),
		"TTL and FixedLease":      opt(fencelock.TTL(s), fencelock.FixedLease(s)),
		"FixedLease and MaxHold":  opt(fencelock.FixedLease(s), fencelock.MaxHold(s)),
		"MaxHold and FixedLease":  opt(fencelock.MaxHold(s), fencelock.FixedLease(s)),
		"MinHold over MaxHold":    opt(fencelock.MinHold(2*s), fencelock.MaxHold(s)),
		"MinHold over FixedLease": opt(fencelock.MinHold(2*s), fencelock.FixedLease(s)),
		"a try that waits": func(c *fencelock.Client) error {
			_, err := c.TryLock(bg, "k", fencelock.Wait(1))
			_, err1 := c.TryRLock(bg, "k", fencelock.Wait(s))
			_, err2 := c.Semaphore("k", 1).TryAcquire(bg, 1, fencelock.Wait(s))
			is(t, err1, fencelock.ErrInvalid)
			is(t, err2, fencelock.ErrInvalid)
			return err
		},
		"size zero":          acquire(0, 1),
		"size negative":      acquire(-1, 1),
		"size of a mutex":    acquire(driver.RW, 1),
		"size beyond":        acquire(1<<62, 1),
		"weight zero":        acquire(3, 0),
		"weight negative":    acquire(3, -1),
		"weight over size":   acquire(3, 4),
		"weight of infinity": acquire(3, 1<<63-1),
		"no keys": func(c *fencelock.Client) error {
			_, err := c.LockAll(bg, nil)
			return err
		},
		"token zero":     func(c *fencelock.Client) error { return c.Break(bg, "k", 0, "") },
		"token negative": func(c *fencelock.Client) error { return c.Break(bg, "k", -1, "") },
		"reason too long": func(c *fencelock.Client) error {
			return c.Break(bg, "k", 1, strings.Repeat("r", driver.MaxNote+1))
		},
		"Once with Reentrant": func(c *fencelock.Client) error {
			_, err := c.Once(bg, "k", time.Time{}, nop, fencelock.Reentrant(), try)
			return err
		},
		"a slot that cannot be written": func(c *fencelock.Client) error {
			_, err := c.Once(bg, "k", time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC), nop)
			_, err2 := c.Once(bg, "k", time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC), nop)
			is(t, err2, fencelock.ErrInvalid)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
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
		})
	}
}

func TestErrorNamesOperationAndKey(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.client(&fencelock.Options{Owner: "a"}), w.client(nil)
		l := w.lock(a, "k")
		_, lock := b.Lock(bg, "k", fencelock.Wait(time.Second))
		_, try := b.TryLock(bg, "k")
		_, again := a.Lock(l.Context(), "k")
		unknown := a.Break(bg, "k", 5, "")
		w.release(l)
		renew := l.Renew(bg)
		for err, want := range map[error]string{
			lock:    "lock: not acquired: k is held by a",
			try:     "try lock: not acquired: k is held by a",
			again:   "lock k: this context already holds the key",
			unknown: "break k: no claim has the token 5; nothing was changed",
			renew:   "renew k: k (token " + l.Token().String() + ") was released",
		} {
			if !strings.HasPrefix(err.Error(), want) {
				t.Errorf("got %q, want %q", err, want)
			}
		}
	})
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
			if line, err := b.Line(bg, k); err != nil || line.Key != k || len(line.Claims) != 1 {
				t.Errorf("line of %q: %+v, %v", k, line, err)
			}
		}
		for _, l := range leases {
			w.release(l)
		}
	})
}

var _ fence.Token = (&fencelock.HeldError{}).Token
