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

// optionCall is one call that takes options. before prepares it.
type optionCall struct {
	takes string // all, all but "-NAME", or the names
	call  func(w *world, c *fencelock.Client, l *fencelock.Lease, opt fencelock.Option) error
}

func (o *optionCall) accepts(name string) bool {
	if but, ok := strings.CutPrefix(o.takes, "-"); ok || o.takes == "all" {
		return name != but
	}
	return slices.Contains(strings.Fields(o.takes), name)
}

func noWork(context.Context, *fencelock.Lease) error { return nil }

// asLock is a call that takes the options of Lock.
func asLock(
	f func(c *fencelock.Client, ctx context.Context, key string, opts ...fencelock.Option) (*fencelock.Lease, error),
) optionCall {
	return optionCall{"all", func(w *world, c *fencelock.Client, _ *fencelock.Lease, opt fencelock.Option) error {
		return errOf(f(c, bg, "free", opt))
	}}
}

// A call that is given the lease l, which is held as "k".
var optionCalls = map[string]optionCall{
	"Lock": asLock((*fencelock.Client).Lock), "TryLock": asLock((*fencelock.Client).TryLock),
	"RLock": asLock((*fencelock.Client).RLock), "TryRLock": asLock((*fencelock.Client).TryRLock),
	"Do": {"all", func(w *world, c *fencelock.Client, _ *fencelock.Lease, opt fencelock.Option) error {
		return c.Do(bg, "free", noWork, opt)
	}},
	"LockAll": {"-ClaimID", func(w *world, c *fencelock.Client, _ *fencelock.Lease, opt fencelock.Option) error {
		return errOf(c.LockAll(bg, []string{"free", "freer"}, opt))
	}},
	"Semaphore.Acquire": {"all", func(w *world, c *fencelock.Client, _ *fencelock.Lease, opt fencelock.Option) error {
		return errOf(c.Semaphore("free", 3).Acquire(bg, 1, opt))
	}},
	"Semaphore.TryAcquire": {"all", func(w *world, c *fencelock.Client, _ *fencelock.Lease, opt fencelock.Option) error {
		return errOf(c.Semaphore("free", 3).TryAcquire(bg, 1, opt))
	}},
	"Once": {"-Reentrant", func(w *world, c *fencelock.Client, _ *fencelock.Lease, opt fencelock.Option) error {
		return errOf(c.Once(bg, "free", time.Time{}, noWork, opt))
	}},
	"Adopt": {
		"TTL Note Owner MaxHold MinHold Progress NoRenewal Retry",
		func(w *world, c *fencelock.Client, l *fencelock.Lease, opt fencelock.Option) error {
			h := w.detach(c, l)
			w.store.taken()
			return errOf(c.Adopt(bg, h, opt))
		},
	},
	"FinishDetached": {"Owner", func(w *world, c *fencelock.Client, l *fencelock.Lease, opt fencelock.Option) error {
		h := w.detach(c, l)
		w.store.taken()
		return c.FinishDetached(bg, h, time.Time{}, opt)
	}},
	"Break": {"LockDelay", func(w *world, c *fencelock.Client, l *fencelock.Lease, opt fencelock.Option) error {
		return c.Break(bg, "k", l.Token(), "stuck", opt)
	}},
	"Revoke": {"LockDelay", func(w *world, c *fencelock.Client, l *fencelock.Lease, opt fencelock.Option) error {
		return errOf(c.Revoke(bg, "k", l.Token(), "stuck", time.Second, opt))
	}},
}

// A program gave Adopt a ClaimID. Adopt took it, and two live leases had one token.
func TestEveryCallRefusesTheOptionsThatItDoesNotTake(t *testing.T) {
	for call, o := range optionCalls {
		for name, opt := range everyOption {
			runInWorld(t, call+" with "+name, func(t *testing.T, w *world) {
				c := w.client(nil)
				l := w.lock(c, "k")
				w.store.taken()
				defer time.Sleep(3 * time.Minute) // nobody renews what is detached or named
				defer c.Close()
				err := o.call(w, c, l, opt)
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
		"": reflect.TypeFor[*fencelock.Client](), "Semaphore.": reflect.TypeFor[*fencelock.Semaphore](),
		"Lease.": reflect.TypeFor[*fencelock.Lease](), "MultiLease.": reflect.TypeFor[*fencelock.MultiLease](),
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
