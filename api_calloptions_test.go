package fencelock_test

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
)

// everyOption has one valid Option of each name.
var everyOption = map[string]fencelock.Option{
	"Wait": fencelock.Wait(0), "TTL": fencelock.TTL(time.Minute),
	"NoRenewal": fencelock.NoRenewal(), "MaxHold": fencelock.MaxHold(time.Hour),
	"Progress": fencelock.Progress(time.Minute), "MinHold": fencelock.MinHold(time.Second),
	"LockDelay": fencelock.LockDelay(time.Second), "Reentrant": fencelock.Reentrant(),
	"Retry": fencelock.Retry(fencelock.ExponentialBackoff(time.Millisecond, time.Second)), "Note": fencelock.Note("n"),
	"ClaimID": fencelock.ClaimID("wish-of-one-caller"), "Owner": fencelock.Owner("o"),
}

// optionCall is one call that takes options.
type optionCall struct {
	takes string // all, or all but "-NAME"
	call  func(c *fencelock.Client, opt fencelock.Option) error
}

func (o *optionCall) accepts(name string) bool {
	but, _ := strings.CutPrefix(o.takes, "-")
	return name != but
}

func noWork(context.Context, *fencelock.Lease) error { return nil }

// asLock is a call that takes the options of Lock.
func asLock(
	f func(c *fencelock.Client, ctx context.Context, key string, opts ...fencelock.Option) (*fencelock.Lease, error),
) optionCall {
	return optionCall{"all", func(c *fencelock.Client, opt fencelock.Option) error {
		return errOf(f(c, bg, "free", opt))
	}}
}

// The calls that take options. "k" is held meanwhile.
var optionCalls = map[string]optionCall{
	"Lock": asLock((*fencelock.Client).Lock), "TryLock": asLock((*fencelock.Client).TryLock),
	"RLock": asLock((*fencelock.Client).RLock),
	"Do": {"all", func(c *fencelock.Client, opt fencelock.Option) error {
		return c.Do(bg, "free", noWork, opt)
	}},
	"LockAll": {"-ClaimID", func(c *fencelock.Client, opt fencelock.Option) error {
		return errOf(c.LockAll(bg, []string{"free", "freer"}, opt))
	}},
	"Acquire": {"all", func(c *fencelock.Client, opt fencelock.Option) error {
		return errOf(c.Acquire(bg, "free", 1, 3, opt))
	}},
	"Once": {"-Reentrant", func(c *fencelock.Client, opt fencelock.Option) error {
		return errOf(c.Once(bg, "free", time.Time{}, noWork, opt))
	}},
}

// A program gave Adopt a ClaimID. Adopt took it, and two live leases had one token. Now the compiler
// refuses it.
func TestAdoptTakesWhatALeaseHas(t *testing.T) {
	takes := strings.Fields("TTL Note Owner MaxHold MinHold Progress NoRenewal Retry")
	for name, opt := range everyOption {
		ofLease, takesIt := opt.(fencelock.LeaseOption)
		if takesIt != slices.Contains(takes, name) {
			t.Errorf("Adopt takes %s: %v", name, takesIt)
			continue
		}
		if !takesIt {
			continue
		}
		runInWorld(t, name, func(t *testing.T, w *world) {
			c := w.client(nil)
			l, err := c.Detached(w.detach(c, w.lock(c, "k"))).Adopt(bg, ofLease)
			ok(t, err)
			w.release(l)
		})
	}
}

func TestEveryCallRefusesTheOptionsThatItDoesNotTake(t *testing.T) {
	for call, o := range optionCalls {
		for name, opt := range everyOption {
			runInWorld(t, call+" with "+name, func(t *testing.T, w *world) {
				c := w.client(nil)
				w.lock(c, "k")
				w.store.taken()
				defer time.Sleep(3 * time.Minute) // nobody renews what is detached or named
				defer c.Close()
				err := o.call(c, opt)
				if o.accepts(name) {
					ok(t, err)
					return
				}
				w.is(err, fencelock.ErrInvalid)
				if err != nil && !strings.HasSuffix(err.Error(), "; leave out "+name) {
					t.Errorf("text: %q", err)
				}
				w.steps()
				w.taken("k")
			})
		}
	}
}

// Every method with options is in the table of the test above.
func TestEveryCallWithOptionsIsKnown(t *testing.T) {
	for prefix, of := range map[string]reflect.Type{
		"":       reflect.TypeFor[*fencelock.Client](),
		"Lease.": reflect.TypeFor[*fencelock.Lease](), "MultiLease.": reflect.TypeFor[fencelock.MultiLease](),
	} {
		for i := range of.NumMethod() {
			m := of.Method(i)
			last := m.Type.NumIn() - 1
			if !m.Type.IsVariadic() || m.Type.In(last) != reflect.TypeFor[[]fencelock.Option]() {
				continue
			}
			if _, known := optionCalls[prefix+m.Name]; !known {
				t.Errorf("%s%s takes options and is not in optionCalls", prefix, m.Name)
			}
		}
	}
}
