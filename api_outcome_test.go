package fencelock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/driverutil"
)

var errReadOnly = driver.Refused(errors.New("the server is read-only"))

// A store that refuses has done nothing, and a program may rely on that. A store that gave no
// answer may have done it.
func TestRefusalsAreToldFromUnknownOutcomes(t *testing.T) {
	first := func(errs ...error) func(context.Context, string) error {
		n := 0
		return func(_ context.Context, step string) error {
			if step != "enter" {
				return nil
			}
			n++
			return errs[min(n, len(errs))-1]
		}
	}
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
				w.store.meddle(first(tt.errs...), nil)
				err := try(w.client(nil))
				w.is(err, fencelock.ErrUnavailable)
				if got := errors.Is(err, fencelock.ErrRefused); got != tt.refused {
					t.Errorf("ErrRefused is matched: %v, want %v, by %v", got, tt.refused, err)
				}
				if got := errors.Is(err, driver.ErrPermanent); got != tt.forGood {
					t.Errorf("it is driver.ErrPermanent: %v, want %v: %v", got, tt.forGood, err)
				}
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
		leaves := 0
		w.store.meddle(func(_ context.Context, step string) error {
			if step == "leave" {
				leaves++
			}
			if step == "enter" {
				return errReadOnly
			}
			return nil
		}, nil)
		w.is(errOf(w.client(nil).TryLock(bg, "k")), fencelock.ErrRefused)
		time.Sleep(time.Minute)
		synctest.Wait()
		steps.Same(t, "Leaves were sent for a claim that never was", leaves, 0)
	})
}

// A release that is refused has changed nothing yet; if an earlier try was not answered, nobody
// knows.
func TestRefusedRelease(t *testing.T) {
	for name, tt := range map[string]struct {
		errs    []error
		refused bool
	}{"refused": {[]error{errReadOnly}, true}, "no answer, then refused": {[]error{errDown, errReadOnly}, false}} {
		runInWorld(t, name, func(t *testing.T, w *world) {
			l := w.lock(w.client(nil), "k")
			n := 0
			w.store.meddle(func(_ context.Context, step string) error {
				if step != "leave" {
					return nil
				}
				n++
				return tt.errs[min(n, len(tt.errs))-1]
			}, nil)
			err := l.Release(bg)
			w.is(err, fencelock.ErrUnavailable)
			if errors.Is(err, fencelock.ErrRefused) != tt.refused {
				t.Errorf("Release answered %v", err)
			}
			w.store.meddle(nil, nil)
		})
	}
}
