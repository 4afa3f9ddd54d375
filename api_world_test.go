package fencelock_test

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
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
	exits   []exit
	shorten time.Duration                // the lease that an Enter answers, unless 0
	forget  bool                         // a renewal does not tell of a notice
	simple  bool                         // a claim with WaitTTL gets that lease also if it is granted at once
	awaited func(t *driver.Ticket) error // what an Await has found, which it may change
	before  hook
	after   hook
}

// hook is what happens at a step.
type hook = func(ctx context.Context, step string) error

// request is what a step asks of the store, for its hooks.
type request struct {
	arrive  func() error    // does it, whenever that is
	tickets []driver.Ticket // of a renewal
}

type requestKey struct{}

func requestOf(ctx context.Context) request { return ctx.Value(requestKey{}).(request) }

// exit is a Leave that was sent.
type exit struct {
	driver.Exit
	id string
	at time.Time
}

func (p *probe) step(ctx context.Context, name string, do func(ctx context.Context) error, ts ...driver.Ticket) error {
	ctx = context.WithValue(ctx, requestKey{}, request{func() error { return do(context.WithoutCancel(ctx)) }, ts})
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

// answered takes a step. Its answer may come when nobody waits for it any more.
func answered[T any](ctx context.Context, p *probe, name string, do func(ctx context.Context) (T, error)) (answer T, err error) {
	answers := make(chan T, 2)
	err = p.step(ctx, name, func(ctx context.Context) error {
		a, err := do(ctx)
		answers <- a
		return err
	})
	select {
	case answer = <-answers:
	default:
	}
	return answer, err
}

func (p *probe) Enter(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
	p.mu.Lock()
	p.claims = append(p.claims, c)
	p.mu.Unlock()
	if p.simple {
		c.TTL, c.WaitTTL = driverutil.Lease(&c, false), 0
	}
	return answered(ctx, p, "enter", func(ctx context.Context) (driver.Ticket, error) {
		t, err := p.Store.Enter(ctx, c)
		if p.shorten > 0 {
			t.TTL, t.Left = p.shorten, p.shorten
		}
		return t, err
	})
}

func (p *probe) Reserve(ctx context.Context, t driver.Ticket, span int64) (bool, error) {
	return answered(ctx, p, "reserve", func(ctx context.Context) (bool, error) { return p.Store.Reserve(ctx, t, span) })
}

func (p *probe) Await(ctx context.Context, k driver.Ticket) (driver.Ticket, error) {
	return answered(ctx, p, "await", func(ctx context.Context) (driver.Ticket, error) {
		t, err := p.Store.Await(ctx, k)
		if err == nil && p.awaited != nil {
			err = p.awaited(&t)
		}
		return t, err
	})
}

func (p *probe) Renew(ctx context.Context, ts []driver.Ticket) []error {
	errs := make([]error, len(ts))
	err := p.step(ctx, "renew", func(ctx context.Context) error {
		errs = p.Store.Renew(ctx, ts)
		return nil
	}, ts...)
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
	p.exits = append(p.exits, exit{e, t.ID, time.Now()})
	p.mu.Unlock()
	return p.step(ctx, "leave", func(ctx context.Context) error { return p.Store.Leave(ctx, t, e) })
}

func (p *probe) Break(ctx context.Context, key string, token int64, how driver.Break) error {
	return p.step(ctx, "break", func(ctx context.Context) error { return p.Store.Break(ctx, key, token, how) })
}

func (p *probe) Detach(ctx context.Context, t driver.Ticket) error {
	return p.step(ctx, "detach", func(ctx context.Context) error { return p.Store.Detach(ctx, t) })
}

func (p *probe) Adopt(ctx context.Context, t driver.Ticket, by driver.Claim) (driver.Ticket, error) {
	return answered(ctx, p, "adopt", func(ctx context.Context) (driver.Ticket, error) { return p.Store.Adopt(ctx, t, by) })
}

func (p *probe) Line(ctx context.Context, key string) (driver.Line, error) {
	return answered(ctx, p, "line", func(ctx context.Context) (driver.Line, error) { return p.Store.Line(ctx, key) })
}

func (p *probe) Lines(ctx context.Context, prefix string) iter.Seq2[driver.Line, error] {
	if err := p.step(ctx, "lines", func(context.Context) error { return nil }); err != nil {
		return func(yield func(driver.Line, error) bool) { yield(driver.Line{}, err) }
	}
	return p.Store.Lines(ctx, prefix)
}

// meddle sets what happens before and after each step.
func (p *probe) meddle(before, after hook) {
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

// taken returns the steps since the last call of taken, without those that pass the time.
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

// count is how often a step was taken, since the last call of taken.
func (p *probe) count(step string) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.steps {
		if s == step {
			n++
		}
	}
	return n
}

func (p *probe) left() []exit {
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
var faults = map[string]hook{"down": down, "silent": silent}

// world is a store and its Clients, in virtual time.
type world struct {
	*testing.T
	store   *probe
	probes  []*probe // store, and those of Clients that have a network of their own
	clients []*fencelock.Client
}

// inWorld runs f in a bubble. At its end it closes all Clients and checks that the
// store holds no claim; that no goroutine is left is checked by the bubble.
func inWorld(t *testing.T, f func(w *world)) {
	t.Helper()
	watch(t)
	synctest.Test(t, func(t *testing.T) {
		t.Helper()
		// As long as anything is held, virtual time goes on forever.
		late := time.AfterFunc(100*time.Hour, func() { panic(t.Name() + ": a call of the test hangs: 100 hours have passed") })
		defer late.Stop()
		s := memlock.New()
		store := &probe{Store: s, info: s.Info()}
		w := &world{T: t, store: store, probes: []*probe{store}}
		defer func() {
			for _, p := range w.probes {
				p.heal()
			}
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
func (w *world) client(o *fencelock.Options) *fencelock.Client { return w.on(w.store, o) }

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

// says checks that err has this text.
func (w *world) says(err error, want string) {
	w.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		w.Errorf("it does not say %q: %v", want, err)
	}
}

// has checks that d or more is left of a lease.
func (w *world) has(l *fencelock.Lease, d time.Duration) {
	w.Helper()
	if left := time.Until(l.Deadline()); left < d {
		w.Errorf("%v are left of the lease; want %v", left, d)
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
