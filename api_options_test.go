package fencelock_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/driverutil"
	"github.com/fencelock/fencelock/internal/limit"
	"github.com/fencelock/fencelock/internal/testclient"
	"github.com/fencelock/fencelock/memlock"
	"github.com/fencelock/fencelock/quorumlock"
)

// The default owner names the program, the host and the process.
func TestOptionsReachTheStore(t *testing.T) {
	inWorld(t, func(w *world) {
		host, _ := os.Hostname()
		owner := fmt.Sprintf("%s@%s/%d", filepath.Base(os.Args[0]), host, os.Getpid())
		o := &fencelock.Options{Owner: "me", TTL: 7 * time.Second, HandOff: 5}
		c := w.client(o)
		o.Owner, o.TTL, o.HandOff = "changed", time.Hour, 9 // they are copied
		w.release(w.lock(w.client(nil), "k"))
		w.release(w.lock(w.client(&fencelock.Options{}), "k"))
		w.release(w.lock(c, "k"))
		w.release(w.lock(c, "k", fencelock.Note("n"), fencelock.TTL(9*time.Second)))
		var got []string
		for _, e := range w.store.entered() {
			got = append(got, fmt.Sprintf("%s %v %d%s", e.Owner, e.TTL, e.Span, e.Note))
		}
		steps.Same(t, "entered", fmt.Sprint(got), fmt.Sprintf("[%s 30s 64 %s 30s 64 me 7s 5 me 9s 1n]", owner, owner))
	})
}

// New refuses a bad Options, no backend, and a backend that is bad or has an owner.
func TestNewRefusesWhatCannotWork(t *testing.T) {
	inWorld(t, func(w *world) {
		owned := &once{Store: memlock.New()}
		testclient.New(w, owned, nil)
		for name, bad := range map[string]struct {
			b driver.Backend
			o fencelock.Options
		}{
			"owner too long":         {w.store, fencelock.Options{Owner: strings.Repeat("o", limit.Owner+1)}},
			"owner is no text":       {w.store, fencelock.Options{Owner: "a\xff"}},
			"owner with a zero":      {w.store, fencelock.Options{Owner: "a\x00"}},
			"TTL negative":           {w.store, fencelock.Options{TTL: -1}},
			"TTL without a unit":     {w.store, fencelock.Options{TTL: 30}},
			"HandOff negative":       {w.store, fencelock.Options{HandOff: -1}},
			"HandOff too large":      {w.store, fencelock.Options{HandOff: limit.Span + 1}},
			"no backend":             {nil, fencelock.Options{}},
			"the backend is owned":   {owned, fencelock.Options{}},
			"the backend is invalid": {quorumlock.New(nil, nil), fencelock.Options{}},
		} {
			c, err := fencelock.New(bad.b, &bad.o)
			if w.is(err, fencelock.ErrInvalid); c != nil {
				w.Errorf("%s: there is a Client", name)
			}
		}
		w.steps()
	})
}

// once is a store that one Client may own.
type once struct {
	*memlock.Store
	owner driverutil.Ownership
}

func (o *once) Open() error { return o.owner.Take(nil) }

// everyCallIs checks that every method of c that can fail does, with want.
func everyCallIs(w *world, c *fencelock.Client, want error) {
	w.Helper()
	f := func(context.Context, *fencelock.Lease) error { w.Error("f ran"); return nil }
	errs := []error{
		errOf(c.Lock(bg, "k")), errOf(c.TryLock(bg, "k")), errOf(c.RLock(bg, "k")), errOf(c.RLock(bg, "k", fencelock.Wait(0))),
		errOf(c.Acquire(bg, "k", 1, 2)), errOf(c.Acquire(bg, "k", 1, 2, fencelock.Wait(0))),
		errOf(c.LockAll(bg, []string{"b", "a"})), errOf(c.Once(bg, "k", time.Now(), f)), errOf(c.Line(bg, "k")),
		c.Do(bg, "k", f), c.Break(bg, "k", 1, fencelock.Break{}),
	}
	for _, err := range c.Lines(bg, "") {
		errs = append(errs, err)
	}
	steps.Same(w, "calls that failed", len(errs), 12)
	for _, err := range errs {
		w.is(err, want)
		w.not(err, fencelock.ErrNotAcquired, fencelock.ErrUnavailable)
	}
	w.steps()
}

// What differs from the Client's ordinary claims stands in the store's line by
// itself: it cannot be handed on, nor can it be handed something.
func TestSpecialCallsHaveAClaimOfTheirOwn(t *testing.T) {
	for name, opt := range map[string]fencelock.Option{
		"TTL": fencelock.TTL(7 * time.Second), "Note": fencelock.Note("n"), "MaxHold": fencelock.MaxHold(time.Hour),
		"MinHold": fencelock.MinHold(time.Millisecond), "NoRenewal": fencelock.NoRenewal(), "Once": nil,
		"Progress": fencelock.Progress(time.Hour), "LockDelay": fencelock.LockDelay(time.Second), "Owner": fencelock.Owner("o"),
		"the Client's own TTL": fencelock.TTL(30 * time.Second), "the empty note": fencelock.Note(""),
	} {
		runInWorld(t, name, func(t *testing.T, w *world) {
			c := w.client(nil)
			first := w.lock(c, "k")
			k := w.begin(func() (*fencelock.Lease, error) {
				if name == "Once" {
					_, err := c.Once(bg, "k", time.Time{}, func(context.Context, *fencelock.Lease) error { return nil })
					return nil, err
				}
				return c.Lock(bg, "k", opt)
			})
			own := len(w.store.entered()) > 1
			if want := name != "the Client's own TTL" && name != "the empty note"; own != want {
				t.Errorf("a claim of its own: %v", own)
			} else if span := w.store.entered()[len(w.store.entered())-1].Span; own && span != 1 {
				t.Errorf("it reserves %d tokens", span)
			}
			w.release(first)
			l, err := k.wait()
			ok(t, err)
			if l != nil {
				w.release(l)
			}
		})
	}
}

//verify:fault The API, on all stores | leases of zero, negative, of a nanosecond, huge
func TestExtremesOfOptionsWork(t *testing.T) {
	inWorld(t, func(w *world) {
		for _, o := range []*fencelock.Options{
			{Owner: strings.Repeat("o", limit.Owner)}, {TTL: time.Millisecond}, {HandOff: 1}, {HandOff: limit.Span},
			{TTL: 1<<63 - 1}, {Owner: "\x01\u202e\n"},
		} {
			c := w.client(o)
			l := w.lock(c, "k", fencelock.Note(strings.Repeat("n", limit.Note)))
			if !l.Deadline().After(time.Now()) {
				t.Errorf("%+v: deadline %v", o, l.Deadline())
			}
			w.release(l)
			w.release(w.lock(c, "k"))
		}
		c := w.client(nil)
		for _, opt := range []fencelock.Option{
			nil, fencelock.Wait(0), fencelock.Wait(1<<63 - 1), fencelock.TTL(time.Millisecond), fencelock.TTL(1<<63 - 1),
			fencelock.MaxHold(1<<63 - 1), fencelock.NoRenewal(), fencelock.Note(""), fencelock.MinHold(1),
		} {
			l := w.got(c.Lock(bg, "k", opt))
			time.Sleep(time.Microsecond)
			steps.Well(t, opt, l.Err())
			w.release(l)
			time.Sleep(time.Minute)
		}
	})
}

// The longest of all leases does not overflow, also where the backend knows no longest one.
//
//verify:fault The API, on all stores | leases of zero, negative, of a nanosecond, huge
func TestLongestLeaseDoesNotOverflow(t *testing.T) {
	inWorld(t, func(w *world) {
		w.store.info.MaxTTL = 0
		net := &endless{w.store}
		c := testclient.New(t, net, &fencelock.Options{TTL: 1<<63 - 1})
		defer c.Close()
		time.Sleep(time.Hour)
		l := w.lock(c, "k")
		time.Sleep(time.Hour)
		if l.Err() != nil || time.Until(l.Deadline()) < time.Hour {
			t.Errorf("%v, deadline %v", l.Err(), l.Deadline())
		}
		w.release(l)
	})
}

// endless takes leases of any length, and answers that it granted them.
type endless struct{ *probe }

func (e *endless) Enter(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
	ttl := c.TTL
	c.TTL = min(ttl, 366*24*time.Hour)
	t, err := e.probe.Enter(ctx, c)
	t.TTL, t.Left = ttl, ttl
	return t, err
}

// A Backoff of zero must not become a busy loop: in virtual time that would be a hang.
func TestBackoffIsUsedAndBounded(t *testing.T) {
	for name, b := range map[string]time.Duration{"zero": 0, "negative": -time.Hour, "endless": 1<<63 - 1} {
		runInWorld(t, name, func(t *testing.T, w *world) {
			var tries atomic.Int64
			c := w.client(&fencelock.Options{TTL: 10 * time.Second, Backoff: func(attempt int, last error) (time.Duration, bool) {
				if attempt < 1 || !errors.Is(last, fencelock.ErrUnavailable) {
					t.Errorf("attempt %d after %v", attempt, last)
				}
				tries.Add(1)
				return b, true
			}})
			held := w.lock(c, "held")
			w.store.meddle(down, nil)
			start := time.Now()
			w.is(errOf(c.Lock(bg, "k", fencelock.Wait(2*time.Second))), fencelock.ErrUnavailable)
			took(t, start, 2*time.Second)
			<-held.Context().Done()
			if n := len(w.store.taken()); n > 20000 {
				t.Errorf("%d tries", n)
			}
			if tries.Load() == 0 {
				t.Error("not asked")
			}
			time.Sleep(time.Minute)
		})
	}
	inWorld(t, func(w *world) {
		var attempts []int
		c := w.client(&fencelock.Options{Backoff: func(attempt int, _ error) (time.Duration, bool) {
			attempts = append(attempts, attempt)
			return time.Second, true
		}})
		w.store.meddle(down, nil)
		time.AfterFunc(2500*time.Millisecond, w.store.heal)
		start := time.Now()
		w.release(w.lock(c, "k"))
		if d := time.Since(start); d != 3*time.Second || fmt.Sprint(attempts) != "[1 2 3]" {
			t.Errorf("granted after %v, attempts %v", d, attempts)
		}
	})
}

// everyOption has one valid Option of each name.
var everyOption = map[string]fencelock.Option{
	"Wait": fencelock.Wait(0), "TTL": fencelock.TTL(time.Minute),
	"NoRenewal": fencelock.NoRenewal(), "MaxHold": fencelock.MaxHold(time.Hour),
	"Progress": fencelock.Progress(time.Minute), "MinHold": fencelock.MinHold(time.Second),
	"LockDelay": fencelock.LockDelay(time.Second), "Reentrant": fencelock.Reentrant(),
	"Retry": fencelock.Retry(fencelock.ExponentialBackoff(time.Millisecond, time.Second)), "Note": fencelock.Note("n"),
	"ClaimID": fencelock.ClaimID("wish-of-one-caller"), "Owner": fencelock.Owner("o"),
}

// Adopt took a ClaimID, and two live leases had one token. Now the compiler refuses it.
func TestAdoptTakesWhatALeaseHas(t *testing.T) {
	for name, opt := range everyOption {
		ofLease, takesIt := opt.(fencelock.LeaseOption)
		if !takesIt {
			continue
		}
		runInWorld(t, name, func(t *testing.T, w *world) {
			c := w.client(nil)
			w.release(w.got(c.Detached(w.detach(c, w.lock(c, "k"))).Adopt(bg, ofLease)))
		})
	}
	if _, takesIt := everyOption["ClaimID"].(fencelock.LeaseOption); takesIt {
		t.Error("Adopt takes ClaimID")
	}
}

func noWork(context.Context, *fencelock.Lease) error { return nil }

func TestEveryCallRefusesTheOptionsThatItDoesNotTake(t *testing.T) {
	for call, try := range map[string]func(c *fencelock.Client, opt fencelock.Option) error{
		"Lock": func(c *fencelock.Client, opt fencelock.Option) error { return errOf(c.Lock(bg, "k", opt)) },
		"LockAll, not ClaimID": func(c *fencelock.Client, opt fencelock.Option) error {
			return errOf(c.LockAll(bg, []string{"k", "l"}, opt))
		},
		"Once, not Reentrant": func(c *fencelock.Client, opt fencelock.Option) error {
			return errOf(c.Once(bg, "k", time.Time{}, noWork, opt))
		},
	} {
		for name, opt := range everyOption {
			runInWorld(t, call+" with "+name, func(t *testing.T, w *world) {
				c := w.client(nil)
				defer time.Sleep(3 * time.Minute) // nobody renews what is detached or named
				defer c.Close()
				err := try(c, opt)
				if !strings.HasSuffix(call, ", not "+name) {
					ok(t, err)
					return
				}
				w.is(err, fencelock.ErrInvalid)
				if err != nil && !strings.HasSuffix(err.Error(), "; leave out "+name) {
					t.Errorf("text: %q", err)
				}
				w.steps()
			})
		}
	}
}
