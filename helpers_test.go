package fencelock_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testclient"
)

// The steps that are the same for every store.
var (
	must       = steps.Must
	ok         = steps.OK
	tookAtMost = steps.TookAtMost
)

// only limits f to some steps.
func only(f hook, steps ...string) hook {
	return func(ctx context.Context, step string) error {
		if !slices.Contains(steps, step) {
			return nil
		}
		return f(ctx, step)
	}
}

// atFirst limits f to the first time.
func atFirst(f hook) hook {
	var done atomic.Bool
	return func(ctx context.Context, step string) error {
		if done.Swap(true) {
			return nil
		}
		return f(ctx, step)
	}
}

// inTurn answers with one of errs after the other, and with the last one from then on.
func inTurn(errs ...error) hook {
	n := 0
	return func(context.Context, string) error {
		n++
		return errs[min(n, len(errs))-1]
	}
}

// takes is a step that takes d, whatever its ctx says.
func takes(d time.Duration) hook {
	return func(context.Context, string) error { time.Sleep(d); return nil }
}

// ttl is the lease of most tests that end one.
const ttl = 10 * time.Second

// brief is a Client with leases of ttl, whose backend has no optional interface.
func (w *world) brief() *fencelock.Client { return w.mute(&fencelock.Options{TTL: ttl}) }

// mute is a Client whose backend has no optional interface: it does not push, nor lengthen claims.
func (w *world) mute(o *fencelock.Options) *fencelock.Client {
	return w.on(struct{ driver.Backend }{w.store}, o)
}

// lengthens is a Client whose backend can lengthen a claim, and has no other optional interface.
func (w *world) lengthens(o *fencelock.Options) *fencelock.Client {
	return w.on(struct {
		driver.Backend
		driver.Reserver
	}{w.store, w.store}, o)
}

// apart is a mute Client with leases of ttl and a network of its own, unless o says otherwise.
func (w *world) apart(o *fencelock.Options) (*probe, *fencelock.Client) {
	p := &probe{Store: w.store.Store, info: w.store.info}
	w.probes = append(w.probes, p)
	if o == nil {
		o = &fencelock.Options{TTL: ttl}
	}
	return p, w.on(struct{ driver.Backend }{p}, o)
}

func (w *world) on(b driver.Backend, o *fencelock.Options) *fencelock.Client {
	c := testclient.New(w, b, o)
	w.clients = append(w.clients, c)
	return c
}

// later begins to lock a key.
func (w *world) later(c *fencelock.Client, key string, opts ...fencelock.Option) *call {
	return w.begin(func() (*fencelock.Lease, error) { return c.Lock(bg, key, opts...) })
}

// watch ends the tests if this one takes half of the time that is left to all of them. Where a goroutine
// spins, virtual time stands still, and no timer of the bubble can tell.
func watch(t *testing.T) {
	end, limited := t.Deadline()
	if !limited {
		return
	}
	name, limit := t.Name(), time.Until(end)/2
	late := time.AfterFunc(limit, func() {
		panic(fmt.Sprintf("%s: has not ended after %v of real time: something spins, and virtual time stands still", name, limit))
	})
	t.Cleanup(func() { late.Stop() })
}

func (w *world) line(c *fencelock.Client, key string) fencelock.Line {
	w.Helper()
	l, err := c.Line(bg, key)
	must(w, err)
	return l
}

func wantEmpty(t *testing.T, b driver.Backend) {
	t.Helper()
	for l, err := range b.Lines(context.Background(), "") {
		must(t, err)
		t.Errorf("claims are left in the line of %q: %+v", l.Key, l.Claims)
	}
}

// errOf is the error of a call whose other result does not matter.
func errOf[T any](_ T, err error) error { return err }

// took checks how long ago start was.
func took(t *testing.T, start time.Time, want time.Duration) {
	t.Helper()
	steps.Same(t, "it took", time.Since(start), want)
}
