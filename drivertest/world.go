package drivertest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// world is what a law plays in: two views of one store, and keys of its own.
type world struct {
	t      tester
	ctx    context.Context
	open   func() driver.Backend
	conf   config
	info   driver.Info
	a, b   *view         // as two processes have them
	prefix string        // of every key of this world
	lease  time.Duration // of short claims, in this round of a timed law

	mu     sync.Mutex
	keys   int
	placed []inLine // claims that may be in line
}

func newWorld(ctx context.Context, t tester, open func() driver.Backend, conf config) *world {
	w := &world{t: t, ctx: ctx, open: open, conf: conf, prefix: "drivertest/" + strings.ToLower(newID()) + "/"}
	w.a, w.b = w.view(), w.view()
	w.info = w.a.Info()
	return w
}

// view opens one more view of the store.
func (w *world) view() *view { return &view{w.open(), w} }

// views are the two views that every world has.
func (w *world) views() []*view { return []*view{w.a, w.b} }

// newID draws at least 128 random bits, as the core does.
func newID() string { return rand.Text() }

// key names a lock that nobody else uses. No name is a prefix of another.
func (w *world) key() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.keys++
	return fmt.Sprintf("%s%d.", w.prefix, w.keys)
}

// claim is an exclusive claim whose lease outlasts the test. It waits if the backend is fair.
func (w *world) claim(key string) driver.Claim {
	return driver.Claim{
		Key:      key,
		ID:       newID(),
		Owner:    "somebody@somewhere",
		Note:     "a note",
		Capacity: driver.RW,
		Weight:   driver.RW,
		TTL:      min(max(longLease, w.info.MinTTL), w.info.MaxTTL),
		NoWait:   !w.info.Fair,
		Span:     1,
	}
}

// reader is a claim to read.
func (w *world) reader(key string) driver.Claim { return reads(w.claim(key)) }

// slots is a claim to n slots of a semaphore of size.
func (w *world) slots(key string, n, size int64) driver.Claim {
	c := w.claim(key)
	c.Weight, c.Capacity = n, size
	return c
}

// reads turns an exclusive claim into one to read.
func reads(c driver.Claim) driver.Claim {
	c.Weight = 1
	return c
}

// spanning turns c into a claim that reserves span tokens.
func spanning(c driver.Claim, span int64) driver.Claim {
	c.Span = span
	return c
}

// lasting turns c into a claim with a lease of ttl.
func lasting(c driver.Claim, ttl time.Duration) driver.Claim {
	c.TTL = ttl
	return c
}

// waitingFor turns c into a claim with a lease of ttl while it waits.
func waitingFor(c driver.Claim, ttl time.Duration) driver.Claim {
	c.WaitTTL = ttl
	return c
}

// after turns c into a claim that follows a token of another store.
func after(c driver.Claim, token int64) driver.Claim {
	c.After = token
	return c
}

// noWait turns c into a claim that does not wait.
func noWait(c driver.Claim) driver.Claim {
	c.NoWait = true
	return c
}

// wrongIf fails the law if it is wrong. It may be called from any goroutine.
func (w *world) wrongIf(wrong bool, format string, args ...any) {
	if wrong {
		w.t.Errorf(format, args...)
	}
}

// same fails the law unless got is want.
func same[T comparable](w *world, what string, got, want T) {
	w.wrongIf(got != want, "%s: got %+v; want %+v", what, got, want)
}

// must ends the law unless err is nil.
func (w *world) must(what string, err error) {
	if err != nil {
		w.t.Fatalf("%s: %v", what, err)
	}
}

// answered holds err to a value.
func (w *world) answered(what string, err, want error) {
	w.wrongIf(!errors.Is(err, want), "%s answered %v; want %v", what, err, want)
}

// asA holds err to an error of type E, and returns that.
func asA[E error](w *world, what string, err error) (e E) {
	if !errors.As(err, &e) {
		w.t.Errorf("%s answered %v; want a %T", what, err, e)
	}
	return e
}

// gone holds err to GoneError.
func (w *world) gone(what string, err error) { _ = asA[driver.GoneError](w, what, err) }

// stays holds err to ErrGranted.
func (w *world) stays(what string, err error) {
	w.wrongIf(!errors.Is(err, driver.ErrGranted), "%s answered %v; want %v", what, err, driver.ErrGranted)
}

// broken holds err to GoneError with an operator's reason.
func (w *world) broken(what, reason string, err error) {
	same(w, what, asA[driver.GoneError](w, what, err), driver.GoneError{Broken: true, Reason: reason})
}

// sound checks what holds for every ticket of c.
func (w *world) sound(c driver.Claim, t driver.Ticket) {
	got := t.Claim
	got.TTL, got.WaitTTL, got.NoWait = c.TTL, c.WaitTTL, c.NoWait // these may differ
	got.Ballot, got.After = c.Ballot, c.After
	same(w, "the claim of a ticket", got, c)
	w.wrongIf(t.Token <= 0 || t.TTL <= 0, "the token is %d and the lease %v; want both above 0", t.Token, t.TTL)
	w.wrongIf(t.Granted != (t.Ahead == 0) || t.Ahead < 0, "a ticket with granted %v has %d ahead", t.Granted, t.Ahead)
	w.wrongIf(!t.Granted && t.Mark != "", "a waiting ticket has the mark %q", t.Mark)
}

// clean leaves with every claim, breaks those that linger, and must find nothing left.
func (w *world) clean() {
	ctx, cancel := context.WithTimeout(context.Background(), lawLimit)
	defer cancel()
	last, end := w.view(), time.Now().Add(patience)
	for _, x := range w.placed {
		exit := driver.Exit{Tombstone: x.Token == 0}
		err := x.at.Leave(ctx, x.Ticket, exit)
		if errors.Is(err, driver.ErrClosed) || w.conf.crash != nil && err != nil {
			err = last.Leave(ctx, x.Ticket, exit)
		}
		// A connection that a busy server ended is no fault of the law: the core asks again, too.
		for w.conf.crash != nil && err != nil && !driver.Gone(err) && time.Now().Before(end) {
			<-time.After(pollEvery)
			err = last.Leave(ctx, x.Ticket, exit)
		}
		w.nilOrGone("clean up: Leave", err)
	}
	end = time.Now().Add(patience)
	left := last.leftover(ctx)
	for pause := pollEvery; left != "" && time.Now().Before(end); pause *= 2 {
		<-time.After(pause)
		left = last.leftover(ctx)
	}
	w.wrongIf(left != "", "everybody has left, and yet %s", left)
}

// leftover breaks what lingers, and describes one claim that should not be there.
func (v *view) leftover(ctx context.Context) (left string) {
	for l, err := range v.Lines(ctx, v.w.prefix) {
		if err != nil {
			v.w.t.Errorf("clean up: Lines: %v", err)
			return ""
		}
		for _, s := range l.Claims {
			left = fmt.Sprintf("the line of %q has the claim %+v", l.Key, s)
			if s.Lingering {
				how := driver.Break{Reason: "end of test", Delay: -1}
				v.w.nilOrGone("clean up: Break", v.Break(ctx, l.Key, s.Token, how))
			}
		}
	}
	return left
}
