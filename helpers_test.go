package fencelock_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testclient"
	"github.com/fencelock/fencelock/memlock"
)

// The steps that are the same for every store.
var (
	must       = steps.Must
	ok         = steps.OK
	tookAtMost = steps.TookAtMost
)

// tap is a backend that a test can look at and interfere with: each hook, if set,
// stands around the real step and may delay it, replace it or change its answer.
type tap struct {
	driver.Backend
	info driver.Info

	mu     sync.Mutex
	enter  func(ctx context.Context, c driver.Claim, do func() (driver.Ticket, error)) (driver.Ticket, error)
	await  func(ctx context.Context, t driver.Ticket, do func() (driver.Ticket, error)) (driver.Ticket, error)
	renew  func(ctx context.Context, ts []driver.Ticket, do func() []error) []error
	leave  func(ctx context.Context, t driver.Ticket, e driver.Exit, do func() error) error
	enters []driver.Claim
	renews int // calls
	leaves []leaving
}

type leaving struct {
	ticket driver.Ticket
	exit   driver.Exit
	at     time.Time
}

func newTap(b driver.Backend) *tap { return &tap{Backend: b, info: b.Info()} }

func (t *tap) set(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f()
}

func (t *tap) Info() driver.Info { return t.info }

// Close leaves the store to the other clients of the test.
func (t *tap) Close() error { return nil }

func (t *tap) Enter(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
	t.mu.Lock()
	t.enters = append(t.enters, c)
	f := t.enter
	t.mu.Unlock()
	do := func() (driver.Ticket, error) { return t.Backend.Enter(context.WithoutCancel(ctx), c) }
	if f == nil {
		return t.Backend.Enter(ctx, c)
	}
	return f(ctx, c, do)
}

func (t *tap) Await(ctx context.Context, k driver.Ticket) (driver.Ticket, error) {
	t.mu.Lock()
	f := t.await
	t.mu.Unlock()
	if f == nil {
		return t.Backend.Await(ctx, k)
	}
	return f(ctx, k, func() (driver.Ticket, error) { return t.Backend.Await(ctx, k) })
}

func (t *tap) Renew(ctx context.Context, ts []driver.Ticket) []error {
	t.mu.Lock()
	t.renews++
	f := t.renew
	t.mu.Unlock()
	if f == nil {
		return t.Backend.Renew(ctx, ts)
	}
	return f(ctx, ts, func() []error { return t.Backend.Renew(context.WithoutCancel(ctx), ts) })
}

func (t *tap) Leave(ctx context.Context, k driver.Ticket, e driver.Exit) error {
	t.mu.Lock()
	t.leaves = append(t.leaves, leaving{k, e, time.Now()})
	f := t.leave
	t.mu.Unlock()
	do := func() error { return t.Backend.Leave(context.WithoutCancel(ctx), k, e) }
	if f == nil {
		return t.Backend.Leave(ctx, k, e)
	}
	return f(ctx, k, e, do)
}

func (t *tap) entered() []driver.Claim {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]driver.Claim(nil), t.enters...)
}

func (t *tap) left() []leaving {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]leaving(nil), t.leaves...)
}

func (t *tap) renewals() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.renews
}

// all answers err for each ticket.
func all(ts []driver.Ticket, err error) []error {
	errs := make([]error, len(ts))
	for i := range errs {
		errs[i] = err
	}
	return errs
}

// bubble runs f in virtual time on an empty store, closes the Clients that f made with client,
// and checks that the store holds no claim any more.
func bubble(t *testing.T, f func(t *testing.T, s *memlock.Store)) {
	t.Helper()
	bubbleFor(t, soon, f)
}

// bubbleFor is bubble for a test that may take so long, of real time.
func bubbleFor(t *testing.T, limit time.Duration, f func(t *testing.T, s *memlock.Store)) {
	t.Helper()
	watch(t, limit)
	synctest.Test(t, func(t *testing.T) {
		s := memlock.New()
		t.Cleanup(func() {
			synctest.Wait()
			wantEmpty(t, s)
		})
		f(t, s)
	})
}

// runInBubble runs f as a subtest in a bubble.
func runInBubble(t *testing.T, name string, f func(t *testing.T, s *memlock.Store)) {
	t.Run(name, func(t *testing.T) { bubble(t, f) })
}

// soon is ten times what a test in virtual time takes on a busy machine.
const soon = 30 * time.Second

// watch ends the tests if this one takes longer, of real time. Where a goroutine spins,
// virtual time stands still, and no timer of the bubble can tell.
func watch(t *testing.T, limit time.Duration) {
	name := t.Name()
	late := time.AfterFunc(limit, func() {
		panic(fmt.Sprintf("%s: has not ended after %v of real time: something spins, and virtual time stands still", name, limit))
	})
	t.Cleanup(func() { late.Stop() })
}

func wantEmpty(t *testing.T, b driver.Backend) {
	t.Helper()
	for l, err := range b.Lines(context.Background(), "") {
		must(t, err)
		t.Errorf("claims are left in the line of %q: %+v", l.Key, l.Claims)
	}
}

func client(t *testing.T, b driver.Backend, o *fencelock.Options) *fencelock.Client {
	t.Helper()
	c := testclient.New(t, b, o)
	t.Cleanup(func() { c.Close() })
	return c
}

// errOf is the error of a call whose other result does not matter.
func errOf[T any](_ T, err error) error { return err }

// tapped is a Client behind a tap, with leases of ttl.
func tapped(t *testing.T, s *memlock.Store) (*tap, *fencelock.Client) {
	b := newTap(s)
	return b, client(t, b, &fencelock.Options{TTL: ttl})
}

// plain is a Client with leases of ttl.
func plain(t *testing.T, s *memlock.Store) *fencelock.Client {
	_, c := tapped(t, s)
	return c
}

// lockLater locks "k" on another goroutine.
func lockLater(t *testing.T, c *fencelock.Client) <-chan *fencelock.Lease {
	got := make(chan *fencelock.Lease, 1)
	go func() { got <- mustLock(t, c, "k") }()
	return got
}

// took checks how long ago start was.
func took(t *testing.T, start time.Time, want time.Duration) {
	t.Helper()
	steps.Same(t, "it took", time.Since(start), want)
}

// nothing checks that no lease has been granted yet.
func nothing(t *testing.T, granted <-chan *fencelock.Lease, otherwise string) {
	t.Helper()
	select {
	case <-granted:
		t.Fatal(otherwise)
	default:
	}
}

// rises holds the tokens of two grants to their order.
func rises[T ~int64](t testing.TB, before, after T) {
	t.Helper()
	if after <= before {
		t.Errorf("token %v was granted after %v", after, before)
	}
}

func mustLock(t *testing.T, c *fencelock.Client, key string, opts ...fencelock.Option) *fencelock.Lease {
	t.Helper()
	l, err := c.Lock(context.Background(), key, opts...)
	must(t, err)
	return l
}

func mustRelease(t *testing.T, l *fencelock.Lease) {
	t.Helper()
	must(t, l.Release(context.Background()))
}

// after sleeps in virtual time. A channel of a timer that is due as it is made may end the race
// detector in a bubble (golang/go#78156).
func after(d time.Duration) { time.Sleep(d) }
