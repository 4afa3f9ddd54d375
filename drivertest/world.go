package drivertest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// world is what a law plays in: two views of one store, keys of its own, and a
// record of every claim, so that nothing stays behind.
type world struct {
	t      tester
	ctx    context.Context
	open   func() driver.Backend
	conf   config
	info   driver.Info
	a, b   driver.Backend // as two processes have them
	prefix string         // of every key of this world

	mu     sync.Mutex
	keys   int
	placed []placed
}

// placed is a claim that may be in line, and the view that brought it there.
type placed struct {
	view   driver.Backend
	ticket driver.Ticket
}

func newWorld(ctx context.Context, t tester, open func() driver.Backend, conf config) *world {
	t.Helper()
	a := open()
	return &world{
		t:      t,
		ctx:    ctx,
		open:   open,
		conf:   conf,
		info:   a.Info(),
		a:      a,
		b:      open(),
		prefix: "drivertest/" + newID()[:12] + "/",
	}
}

// newID draws 128 random bits, as the core does.
func newID() string {
	var b [16]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// key names a lock that nobody else uses. No name begins as another does: whoever lists by
// a key reads one line.
func (w *world) key() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.keys++
	return fmt.Sprintf("%s%d.", w.prefix, w.keys)
}

// claim is an exclusive claim with a lease that does not end during a test. Where
// nobody can queue it does not wait.
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
func (w *world) reader(key string) driver.Claim {
	c := w.claim(key)
	c.Weight = 1
	return c
}

// slots is a claim to n slots of a semaphore of size.
func (w *world) slots(key string, n, size int64) driver.Claim {
	c := w.claim(key)
	c.Weight, c.Capacity = n, size
	return c
}

// noWait turns c into a claim that does not wait.
func noWait(c driver.Claim) driver.Claim {
	c.NoWait = true
	return c
}

// try sends Enter, and remembers the claim whatever the answer is.
func (w *world) try(b driver.Backend, c driver.Claim) (driver.Ticket, error) {
	t, err := b.Enter(w.ctx, c)
	kept := t
	if err != nil {
		kept = driver.Ticket{Claim: c}
	}
	w.mu.Lock()
	w.placed = append(w.placed, placed{b, kept})
	w.mu.Unlock()
	return t, err
}

// enter joins the line, and holds the ticket to what every ticket must say.
func (w *world) enter(b driver.Backend, c driver.Claim) driver.Ticket {
	w.t.Helper()
	t, err := w.try(b, c)
	if err != nil {
		w.t.Fatalf("Enter on %q: %v", c.Key, err)
	}
	w.sound(c, t)
	if t.Left <= 0 {
		w.t.Errorf("a lease of %v has %v left", t.TTL, t.Left)
	}
	return t
}

// sound checks what holds for every ticket of c.
func (w *world) sound(c driver.Claim, t driver.Ticket) {
	w.t.Helper()
	switch {
	case t.Key != c.Key || t.ID != c.ID || t.Owner != c.Owner || t.Note != c.Note:
		w.t.Errorf("the ticket is for another claim: sent %+v, got %+v", c, t.Claim)
	case t.Capacity != c.Capacity || t.Weight != c.Weight || t.Span != c.Span:
		w.t.Errorf("the ticket changed the claim: sent %+v, got %+v", c, t.Claim)
	case t.Token <= 0:
		w.t.Errorf("the token is %d, want one above 0", t.Token)
	case t.TTL <= 0:
		w.t.Errorf("the lease is %v; want one above 0", t.TTL)
	case t.Granted && t.Ahead != 0:
		w.t.Errorf("a granted ticket says that %d are ahead", t.Ahead)
	case !t.Granted && t.Ahead < 1:
		w.t.Errorf("a waiting ticket says that %d are ahead", t.Ahead)
	case !t.Granted && t.Mark != "":
		w.t.Errorf("a waiting ticket has the mark %q", t.Mark)
	}
}

// hold joins the line and must be granted at once.
func (w *world) hold(b driver.Backend, c driver.Claim) driver.Ticket {
	w.t.Helper()
	t := w.enter(b, c)
	if !t.Granted {
		w.t.Fatalf("Enter on %q was not granted, %d ahead, head %v; want a grant: nothing stands in its way", c.Key, t.Ahead, t.Head)
	}
	return t
}

// wait joins the line and must not be granted.
func (w *world) wait(b driver.Backend, c driver.Claim) driver.Ticket {
	w.t.Helper()
	t := w.enter(b, c)
	if t.Granted {
		w.t.Fatalf("Enter on %q with weight %d of %d was granted; want it to wait for those before it", c.Key, c.Weight, c.Capacity)
	}
	return t
}

// refused sends an Enter that does not wait, and must be refused.
func (w *world) refused(b driver.Backend, c driver.Claim) *driver.BusyError {
	w.t.Helper()
	t, err := w.try(b, noWait(c))
	var busy *driver.BusyError
	if !errors.As(err, &busy) {
		w.t.Fatalf("Enter on %q with NoWait answered granted %v and error %v; want a *BusyError", c.Key, t.Granted, err)
	}
	return busy
}

// leave must succeed.
func (w *world) leave(b driver.Backend, t driver.Ticket, e driver.Exit) {
	w.t.Helper()
	if err := b.Leave(w.ctx, t, e); err != nil {
		w.t.Fatalf("Leave on %q: %v", t.Key, err)
	}
}

// renewed sends Renew for one ticket.
func (w *world) renewed(b driver.Backend, t driver.Ticket) error {
	w.t.Helper()
	errs := b.Renew(w.ctx, []driver.Ticket{t})
	if len(errs) != 1 {
		w.t.Fatalf("Renew of one ticket answered %d errors", len(errs))
	}
	return errs[0]
}

// gone holds err to ErrGone.
func (w *world) gone(what string, err error) driver.ErrGone {
	w.t.Helper()
	var g driver.ErrGone
	if !errors.As(err, &g) {
		w.t.Errorf("%s answered %v; want ErrGone", what, err)
	}
	return g
}

// granted waits until t is granted.
func (w *world) granted(b driver.Backend, t driver.Ticket) driver.Ticket {
	w.t.Helper()
	end := time.Now().Add(patience)
	for calls := 0; ; calls++ {
		if calls > mostCalls {
			w.t.Fatalf("Await on %q: %v", t.Key, errSpin)
		}
		now, err := b.Await(w.ctx, t)
		if err != nil {
			w.t.Fatalf("Await on %q: %v", t.Key, err)
		}
		w.sound(t.Claim, now)
		if now.Token != t.Token {
			w.t.Errorf("Await changed the token from %d to %d", t.Token, now.Token)
		}
		if now.Granted {
			return now
		}
		if time.Now().After(end) {
			w.t.Fatalf("a claim on %q is not granted after %v, %d ahead, line %+v", t.Key, patience, now.Ahead, w.line(b, t.Key))
		}
		t = now
	}
}

// line looks at one line; it is empty of claims if Lines does not yield it.
func (w *world) line(b driver.Backend, key string) driver.Line {
	w.t.Helper()
	for l, err := range b.Lines(w.ctx, key) {
		if err != nil {
			w.t.Fatalf("Lines with prefix %q: %v", key, err)
		}
		if l.Key == key {
			return l
		}
	}
	return driver.Line{Key: key}
}

// standing looks for the claim of t.
func (w *world) standing(b driver.Backend, t driver.Ticket) (s driver.Standing, ok bool) {
	w.t.Helper()
	for _, s := range w.line(b, t.Key).Claims {
		if s.ID == driver.ShortID(t.ID) {
			return s, true
		}
	}
	return s, false
}

// stillWaits must find the claim of t in line and not granted.
func (w *world) stillWaits(b driver.Backend, t driver.Ticket) {
	w.t.Helper()
	s, ok := w.standing(b, t)
	if !ok {
		w.t.Errorf("a waiting claim on %q is not in line any more", t.Key)
		return
	}
	if s.Granted {
		w.t.Errorf("a claim on %q is granted while others before it still stand in its way", t.Key)
	}
}

// stillHolds must find the claim of t in line and granted.
func (w *world) stillHolds(b driver.Backend, t driver.Ticket) {
	w.t.Helper()
	s, ok := w.standing(b, t)
	if !ok {
		w.t.Errorf("a granted claim on %q is not in line any more", t.Key)
		return
	}
	if !s.Granted {
		w.t.Errorf("a granted claim on %q is not granted any more", t.Key)
	}
}

// empty must find nobody in the line of key.
func (w *world) empty(b driver.Backend, key string) {
	w.t.Helper()
	if l := w.line(b, key); len(l.Claims) > 0 {
		w.t.Errorf("the line of %q still has %d claims, the first is %+v; want none", key, len(l.Claims), l.Claims[0])
	}
}
