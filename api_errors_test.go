package fencelock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/driverutil"
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
		want := fencelock.HeldError{Key: "orders/42", Ahead: 1, Standing: fencelock.Standing{
			Owner: "web-3/812", Note: "reindex", Token: l.Token(), Since: since, Left: 8 * time.Second,
		}}
		if h.Since.Equal(since) {
			want.Since = h.Since // monotonic readings aside
		}
		steps.Same(t, "it is refused by", *h, want)
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
			{fencelock.HeldError{Key: "k", Standing: fencelock.Standing{Owner: "o"}, Ahead: 1}, "k is held by o"},
			{
				fencelock.HeldError{Key: "orders/42", Ahead: 2, Standing: fencelock.Standing{Owner: "web-3/812", Note: "note", Since: today}},
				"orders/42 is held by web-3/812 (note) since " + today.Format("15:04:05") + ", 2 ahead with the holder",
			},
			{
				fencelock.HeldError{Key: "k", Standing: fencelock.Standing{Owner: "o", Since: time.Date(1999, 3, 4, 5, 6, 7, 0, time.Local)}},
				"k is held by o since 1999-03-04 05:06:07",
			},
		} {
			steps.Same(t, "the text", c.h.Error(), c.want)
		}
	})
}

// Owner and note come from others: they must not move a reader's cursor, forge
// lines of a log, or turn the direction of text around.
//
//verify:fault Security | owner and note are shown with control characters escaped
func TestErrorTextEscapesWhatOthersWrote(t *testing.T) {
	const text = "\x1b[31mx\r\ny\u202e\u2028"
	const evil = text + "\x00\xff" // which is refused where text is wanted
	safe := func(s string) {
		t.Helper()
		if strings.ContainsAny(s, "\x1b\r\n\x00\u202e\u2028") || !utf8.ValidString(s) {
			t.Errorf("unescaped: %q", s)
		}
	}
	h := &fencelock.HeldError{Key: evil, Standing: fencelock.Standing{Owner: evil, Note: evil}}
	safe(h.Error())
	if want := `\x1b[31mx\r\ny\u202e\u2028\x00\xff`; !strings.Contains(h.Error(), "held by "+want+" ("+want+")") {
		t.Errorf("got %s", h.Error())
	}

	inWorld(t, func(w *world) {
		a := w.client(&fencelock.Options{Owner: text})
		l := w.lock(a, evil, fencelock.Note(text))
		_, err := w.client(nil).TryLock(bg, evil)
		w.held(err)
		safe(err.Error())
		must(t, a.Break(bg, evil, l.Token(), fencelock.Break{Reason: text}))
		safe(l.Err().Error())
		safe(l.Release(bg).Error())
		safe(context.Cause(l.Context()).Error())
		safe(l.String())
	})
}

// wish is a call that wants the key "k".
type wish = func(ctx context.Context, c *fencelock.Client) error

// refusal is a call that is refused because the lock is taken: that of its own process, that of another one,
// or that of another one where the backend has no line.
type refusal struct {
	by    string
	after time.Duration
	wish
}

var errAway = errors.New("the user went away")

// cancelled is f with a ctx that is cancelled after a second.
func cancelled(t *testing.T, f wish) wish {
	return func(ctx context.Context, c *fencelock.Client) error {
		ctx, cancel := context.WithCancelCause(ctx)
		time.AfterFunc(time.Second, func() { cancel(errAway) })
		err := f(ctx, c)
		is(t, err, context.Canceled, errAway)
		return err
	}
}

func refusals(t *testing.T) map[string]refusal {
	lock := func(opts ...fencelock.Option) wish {
		return func(ctx context.Context, c *fencelock.Client) error { return errOf(c.Lock(ctx, "k", opts...)) }
	}
	tryLock := func(ctx context.Context, c *fencelock.Client) error { return errOf(c.TryLock(ctx, "k")) }
	rlock := func(ctx context.Context, c *fencelock.Client) error { return errOf(c.RLock(ctx, "k")) }
	wait := fencelock.Wait(time.Second)
	hour := []fencelock.Option{fencelock.NoRenewal(), fencelock.TTL(time.Hour), wait}
	return map[string]refusal{
		"TryLock, other process":             {"other", 0, tryLock},
		"TryLock, this process":              {"own", 0, tryLock},
		"Lock with Wait(0)":                  {"other", 0, lock(fencelock.Wait(0))},
		"Wait in the store's line":           {"other", time.Second, lock(wait)},
		"Wait in this process":               {"own", time.Second, lock(wait)},
		"Wait beside the local queue":        {"own", time.Second, lock(wait, fencelock.Note("n"))},
		"Wait without a line":                {"no line", time.Second, lock(wait)},
		"NoRenewal":                          {"other", time.Second, lock(hour...)},
		"NoRenewal without a line":           {"no line", time.Second, lock(hour...)},
		"ctx cancelled in the store's line":  {"other", time.Second, cancelled(t, lock())},
		"ctx cancelled in this process":      {"own", time.Second, cancelled(t, lock())},
		"ctx cancelled while a reader waits": {"own", time.Second, cancelled(t, rlock)},
	}
}

// Whatever way a call fails because the lock is taken, it says so in the same way. Wait bounds the
// waiting, and not the holding.
func TestEveryRefusalIsNotAcquiredWithHeldError(t *testing.T) {
	for name, try := range refusals(t) {
		runInWorld(t, name, func(t *testing.T, w *world) {
			w.store.info.Fair = try.by != "no line"
			holder := w.client(&fencelock.Options{Owner: "holder"})
			l := w.lock(holder, "k", fencelock.Wait(time.Second))
			c := holder
			if try.by != "own" {
				c = w.client(&fencelock.Options{Owner: "other"})
			}
			start := time.Now()
			err := try.wish(bg, c)
			took(t, start, try.after)
			h := w.held(err)
			if h.Key != "k" || h.Owner != "holder" || h.Token != l.Token() || h.Ahead < 1 {
				t.Errorf("got %+v", h)
			}
			w.says(err, "k is held by holder")
			time.Sleep(3 * time.Second) // what is cleaned up in the background
			w.release(l)
			w.free("k")
		})
	}
}

// A try must not report a holder that left while the front of the queue waited.
func TestTryBesideAWaiterNamesThePresentHolder(t *testing.T) {
	inWorld(t, func(w *world) {
		first := w.client(&fencelock.Options{Owner: "first"})
		second := w.client(&fencelock.Options{Owner: "second"})
		third := w.client(&fencelock.Options{Owner: "third"})
		l1 := w.lock(first, "k")
		k2 := w.later(second, "k")
		k3 := w.later(third, "k")
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

func TestErrorNamesOperationAndKey(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.client(&fencelock.Options{Owner: "a"}), w.client(nil)
		l := w.lock(a, "k")
		_, lock := b.Lock(bg, "k", fencelock.Wait(time.Second))
		_, try := b.TryLock(bg, "k")
		_, again := a.Lock(l.Context(), "k")
		unknown := a.Break(bg, "k", 5, fencelock.Break{})
		w.release(l)
		renew := l.Renew(bg)
		broken := w.lock(a, "k")
		must(t, a.Break(bg, "k", broken.Token(), fencelock.Break{Reason: "why"}))
		for err, want := range map[error]string{
			lock:    "lock: not acquired: k is held by a",
			try:     "try lock: not acquired: k is held by a",
			again:   "lock k: this context already holds the key",
			unknown: "break k: no claim has the token 5; nothing was changed",
			renew:   "renew k: k (token " + l.Token().String() + ") was released",

			broken.Release(bg): "release: k (token " + broken.Token().String() + ") was lost: the store ended the claim: why",
		} {
			if !strings.HasPrefix(err.Error(), want) {
				t.Errorf("got %q, want %q", err, want)
			}
		}
	})
}

var errReadOnly = driver.Refused(errors.New("the server is read-only"))

// A store that refuses has done nothing. A store that gave no answer may have done it.
func TestRefusalsAreToldFromUnknownOutcomes(t *testing.T) {
	wrong := driver.Permanent(errors.New("wrong password"))
	closed := driver.Permanent(fmt.Errorf("the client of the store is closed: %w", context.Canceled))
	for name, tt := range map[string]struct {
		errs             []error
		refused, forGood bool
	}{
		"refused":                      {[]error{errReadOnly}, true, false},
		"refused for good":             {[]error{wrong}, true, true},
		"the store's client is closed": {[]error{closed}, true, true},
		"no answer":                    {[]error{errDown}, false, false},
		"no answer, then refused":      {[]error{errDown, errReadOnly}, false, false},
		"refused, then no answer":      {[]error{errReadOnly, errDown}, false, false},
		"no answer, then a wrong one":  {[]error{errDown, wrong}, false, true},
	} {
		for how, try := range map[string]func(c *fencelock.Client) error{
			"try":  func(c *fencelock.Client) error { return errOf(c.TryLock(bg, "k")) },
			"wait": func(c *fencelock.Client) error { return errOf(c.Lock(bg, "k", fencelock.Wait(3*time.Second))) },
		} {
			runInWorld(t, name+"/"+how, func(t *testing.T, w *world) {
				w.store.meddle(only(inTurn(tt.errs...), "enter"), nil)
				start := time.Now()
				err := try(w.client(nil))
				w.is(err, fencelock.ErrUnavailable)
				if tt.forGood {
					tookAtMost(t, start, time.Second) // no repeat can help
				}
				steps.Same(t, fmt.Sprint("it is ErrRefused: ", err), errors.Is(err, fencelock.ErrRefused), tt.refused)
				steps.Same(t, fmt.Sprint("it is ErrPermanent: ", err), errors.Is(err, driver.ErrPermanent), tt.forGood)
				if driverutil.RefusedForNow(err) != (tt.refused && !tt.forGood) {
					t.Errorf("it is driver.ErrRefused, or is not, against the outcome: %v", err)
				}
			})
		}
	}
}

// An Enter that was refused has left nothing, so nothing is sent to clean up behind it.
func TestNothingIsCleanedUpAfterARefusal(t *testing.T) {
	inWorld(t, func(w *world) {
		w.store.meddle(only(inTurn(errReadOnly), "enter"), nil)
		w.is(errOf(w.client(nil).TryLock(bg, "k")), fencelock.ErrRefused)
		time.Sleep(time.Minute)
		synctest.Wait()
		steps.Same(t, "Leaves were sent for a claim that never was", len(w.store.left()), 0)
	})
}

// A release that is refused has changed nothing, unless an earlier try was not answered.
func TestRefusedRelease(t *testing.T) {
	for name, tt := range map[string]struct {
		errs    []error
		refused bool
	}{"refused": {[]error{errReadOnly}, true}, "no answer, then refused": {[]error{errDown, errReadOnly}, false}} {
		runInWorld(t, name, func(t *testing.T, w *world) {
			l := w.lock(w.client(nil), "k")
			w.store.meddle(only(inTurn(tt.errs...), "leave"), nil)
			err := l.Release(bg)
			w.is(err, fencelock.ErrUnavailable)
			steps.Same(t, fmt.Sprint("it is ErrRefused: ", err), errors.Is(err, fencelock.ErrRefused), tt.refused)
		})
	}
}

func TestSentinelsAreDistinct(t *testing.T) {
	losses := []error{fencelock.ErrExpired, fencelock.ErrStalled, fencelock.ErrBroken, fencelock.ErrMaxHold}
	all := append([]error{
		fencelock.ErrNotAcquired, fencelock.ErrUnavailable, fencelock.ErrReleased,
		fencelock.ErrDeadlock, fencelock.ErrKind, fencelock.ErrInvalid, fencelock.ErrClosed, fencelock.ErrNoClaim, fencelock.ErrSlotPassed,
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
	not(t, fencelock.ErrClosed, fencelock.ErrLost)
	if s := (&fencelock.HeldError{}); !errors.Is(s, fencelock.ErrNotAcquired) || errors.Is(s, fencelock.ErrLost) {
		t.Error("a HeldError matches ErrNotAcquired, and no more")
	}
}
