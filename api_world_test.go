package fencelock_test

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/driverutil"
	"github.com/fencelock/fencelock/internal/testclient"
	"github.com/fencelock/fencelock/memlock"
)

// probe is a memlock.Store that notes every step asked of it. before may stop a
// step, or hold it up; after may lose its reply.
type probe struct {
	*memlock.Store
	info driver.Info

	mu      sync.Mutex
	steps   []string
	claims  []driver.Claim // as entered
	exits   []driver.Exit
	shorten time.Duration // the lease that an Enter answers, unless 0
	forget  bool          // a renewal does not tell of a notice
	simple  bool          // a claim with WaitTTL gets that lease also if it is granted at once
	before  func(ctx context.Context, step string) error
	after   func(ctx context.Context, step string) error
}

func (p *probe) step(ctx context.Context, name string, do func(ctx context.Context) error) error {
	p.mu.Lock()
	p.steps = append(p.steps, name)
	before, after := p.before, p.after
	p.mu.Unlock()
	if before != nil {
		if err := before(ctx, name); err != nil {
			return err
		}
	}
	if err := do(ctx); err != nil || after == nil {
		return err
	}
	return after(ctx, name)
}

func (p *probe) Info() driver.Info { return p.info }

func (p *probe) Enter(ctx context.Context, c driver.Claim) (t driver.Ticket, err error) {
	p.mu.Lock()
	p.claims = append(p.claims, c)
	p.mu.Unlock()
	if p.simple {
		c.TTL, c.WaitTTL = driverutil.Lease(&c, false), 0
	}
	err = p.step(ctx, "enter", func(ctx context.Context) error {
		t, err = p.Store.Enter(ctx, c)
		if p.shorten > 0 {
			t.TTL, t.Left = p.shorten, p.shorten
		}
		return err
	})
	return t, err
}

func (p *probe) Reserve(ctx context.Context, t driver.Ticket, span int64) (done bool, err error) {
	err = p.step(ctx, "reserve", func(ctx context.Context) error {
		done, err = p.Store.Reserve(ctx, t, span)
		return err
	})
	return done, err
}

func (p *probe) Await(ctx context.Context, k driver.Ticket) (t driver.Ticket, err error) {
	err = p.step(ctx, "await", func(ctx context.Context) error {
		t, err = p.Store.Await(ctx, k)
		return err
	})
	return t, err
}

func (p *probe) Renew(ctx context.Context, ts []driver.Ticket) []error {
	errs := make([]error, len(ts))
	err := p.step(ctx, "renew", func(ctx context.Context) error {
		errs = p.Store.Renew(ctx, ts)
		return nil
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.forget {
		clear(errs)
	}
	for i := range errs {
		if err != nil {
			errs[i] = err
		}
	}
	return errs
}

func (p *probe) Leave(ctx context.Context, t driver.Ticket, e driver.Exit) error {
	p.mu.Lock()
	p.exits = append(p.exits, e)
	p.mu.Unlock()
	return p.step(ctx, "leave", func(ctx context.Context) error { return p.Store.Leave(ctx, t, e) })
}

func (p *probe) Break(ctx context.Context, key string, token int64, how driver.Break) error {
	return p.step(ctx, "break", func(ctx context.Context) error { return p.Store.Break(ctx, key, token, how) })
}

func (p *probe) Detach(ctx context.Context, t driver.Ticket) error {
	return p.step(ctx, "detach", func(ctx context.Context) error { return p.Store.Detach(ctx, t) })
}

func (p *probe) Adopt(ctx context.Context, t driver.Ticket, by driver.Claim) (got driver.Ticket, err error) {
	err = p.step(ctx, "adopt", func(ctx context.Context) error {
		got, err = p.Store.Adopt(ctx, t, by)
		return err
	})
	return got, err
}

func (p *probe) Line(ctx context.Context, key string) (l driver.Line, err error) {
	err = p.step(ctx, "line", func(ctx context.Context) error {
		l, err = p.Store.Line(ctx, key)
		return err
	})
	return l, err
}

func (p *probe) Lines(ctx context.Context, prefix string) iter.Seq2[driver.Line, error] {
	if err := p.step(ctx, "lines", func(context.Context) error { return nil }); err != nil {
		return func(yield func(driver.Line, error) bool) { yield(driver.Line{}, err) }
	}
	return p.Store.Lines(ctx, prefix)
}

// meddle sets what happens before and after each step.
func (p *probe) meddle(before, after func(ctx context.Context, step string) error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.before, p.after = before, after
}

// forgets has renewals no longer tell of a notice.
func (p *probe) forgets() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forget = true
}

// heal lets all steps through again.
func (p *probe) heal() { p.meddle(nil, nil) }

// taken returns the steps since the last call of taken, without those that only
// pass the time.
func (p *probe) taken() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := slices.DeleteFunc(p.steps, func(s string) bool { return s == "await" })
	p.steps = nil
	return s
}

func (p *probe) entered() []driver.Claim {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.claims)
}

func (p *probe) left() []driver.Exit {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.exits)
}

// errDown is what a store answers that is down.
var errDown = errors.New("connection refused")

func down(context.Context, string) error { return errDown }

// silent is a store that never answers.
func silent(ctx context.Context, _ string) error {
	<-ctx.Done()
	return ctx.Err()
}

// faults are stores that refuse, and that never answer.
var faults = map[string]func(context.Context, string) error{"down": down, "silent": silent}

// only limits f to some steps.
func only(f func(ctx context.Context, step string) error, steps ...string) func(ctx context.Context, step string) error {
	return func(ctx context.Context, step string) error {
		if !slices.Contains(steps, step) {
			return nil
		}
		return f(ctx, step)
	}
}

// world is a store and its Clients, in virtual time.
type world struct {
	*testing.T
	store   *probe
	clients []*fencelock.Client
}

// inWorld runs f in a bubble. At its end it closes all Clients and checks that the
// store holds no claim; that no goroutine is left is checked by the bubble.
func inWorld(t *testing.T, f func(w *world)) {
	t.Helper()
	watch(t, soon)
	synctest.Test(t, func(t *testing.T) {
		t.Helper()
		// As long as anything is held, virtual time goes on forever.
		late := time.AfterFunc(100*time.Hour, func() { panic(t.Name() + ": a call of the test hangs: 100 hours have passed") })
		defer late.Stop()
		s := memlock.New()
		w := &world{T: t, store: &probe{Store: s, info: s.Info()}}
		defer func() {
			w.store.heal()
			for _, c := range w.clients {
				ok(t, c.Close())
			}
			synctest.Wait()
			for l, err := range s.Lines(context.Background(), "") {
				for _, claim := range l.Claims {
					if err != nil || !claim.Lingering {
						t.Errorf("left in the line of %q after Close: %+v, %v", l.Key, claim, err)
					}
				}
			}
		}()
		f(w)
	})
}

// runInWorld runs f as a subtest in a bubble.
func runInWorld(t *testing.T, name string, f func(t *testing.T, w *world)) {
	t.Run(name, func(t *testing.T) {
		inWorld(t, func(w *world) { f(w.T, w) })
	})
}

// client makes another Client on the store, as another process would.
func (w *world) client(o *fencelock.Options) *fencelock.Client {
	c := testclient.New(w, w.store, o)
	w.clients = append(w.clients, c)
	return c
}

func (w *world) lock(c *fencelock.Client, key string, opts ...fencelock.Option) *fencelock.Lease {
	w.Helper()
	return w.got(c.Lock(context.Background(), key, opts...))
}

// got is a lease that was to be granted.
func (w *world) got(l *fencelock.Lease, err error) *fencelock.Lease {
	w.Helper()
	if err != nil {
		w.Fatalf("not granted: %v", err)
	}
	if err := l.Err(); err != nil {
		w.Fatalf("granted, but over: %v", err)
	}
	return l
}

func (w *world) release(l *fencelock.Lease) {
	w.Helper()
	steps.Well(w, "release", l.Release(context.Background()))
}

// free checks that key can be taken now, by a stranger.
func (w *world) free(key string) {
	w.Helper()
	synctest.Wait() // for what is done behind
	c := testclient.New(w, w.store.Store, &fencelock.Options{Owner: "stranger"})
	l, err := c.TryLock(context.Background(), key)
	if err != nil {
		w.Errorf("%q should be free: %v", key, err)
	} else {
		w.release(l)
	}
	c.Close()
}

// taken checks that a stranger cannot take key now.
func (w *world) taken(key string) {
	w.Helper()
	c := testclient.New(w, w.store.Store, &fencelock.Options{Owner: "stranger"})
	l, err := c.TryLock(context.Background(), key)
	if err == nil {
		w.Errorf("%q should be taken", key)
		w.release(l)
	}
	c.Close()
}

// steps checks what was asked of the store since the last call.
func (w *world) steps(want ...string) {
	w.Helper()
	if got := w.store.taken(); !slices.Equal(got, want) {
		w.Errorf("steps were %q, want %q", got, want)
	}
}

// is checks that err matches each of want.
func (w *world) is(err error, want ...error) {
	w.Helper()
	is(w.T, err, want...)
}

func is(t *testing.T, err error, want ...error) {
	t.Helper()
	for _, e := range want {
		if !errors.Is(err, e) {
			t.Errorf("error %v (%T) does not match %v", err, err, e)
		}
	}
}

// not checks that err matches none of these.
func (w *world) not(err error, these ...error) {
	w.Helper()
	not(w.T, err, these...)
}

func not(t *testing.T, err error, these ...error) {
	t.Helper()
	for _, e := range these {
		if errors.Is(err, e) {
			t.Errorf("error %v must not match %v", err, e)
		}
	}
}

// held checks that err is ErrNotAcquired with a HeldError, and returns that.
func (w *world) held(err error) *fencelock.HeldError {
	w.Helper()
	w.is(err, fencelock.ErrNotAcquired)
	w.not(err, fencelock.ErrUnavailable, fencelock.ErrLost, fencelock.ErrInvalid)
	var h *fencelock.HeldError
	if !errors.As(err, &h) {
		w.Fatalf("no HeldError in %v", err)
	}
	return h
}

// call is a call that runs beside the test.
type call struct {
	done  chan struct{}
	lease *fencelock.Lease
	err   error
	took  time.Duration
}

// begin starts f beside the test and lets it come to rest.
func (w *world) begin(f func() (*fencelock.Lease, error)) *call {
	k := &call{done: make(chan struct{})}
	start := time.Now()
	go func() {
		defer close(k.done)
		k.lease, k.err = f()
		k.took = time.Since(start)
	}()
	synctest.Wait()
	return k
}

// over reports whether the call has returned.
func (k *call) over() bool {
	synctest.Wait()
	select {
	case <-k.done:
		return true
	default:
		return false
	}
}

// wait waits for the call to return.
func (k *call) wait() (*fencelock.Lease, error) {
	<-k.done
	return k.lease, k.err
}

var bg = context.Background()
