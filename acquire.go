package fencelock

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/fence"
)

var (
	errLate     = errors.New("the answer came after the lease it speaks of had ended")
	errNoAnswer = errors.New("no answer came in time")
	errWaitOver = errors.New("wait over") // internal: refusal replaces it
)

// request says what a call wants.
type request struct {
	op, key          string
	capacity, weight int64
	permits          bool // of a semaphore
	try              bool // it does not wait
}

// acquisition is one call that wants a lease, from its start to its answer. Its goroutine
// does all of the work. Others see it only while it waits in a local queue.
type acquisition struct {
	request
	callOptions
	c   *Client
	ctx context.Context

	enterTTL time.Duration // lease of the claim when it enters, without its LockDelay
	fullTTL  time.Duration // lease with NoRenewal of a call that may wait; else 0
	short    bool          // the claim still has to get a lease of fullTTL, from its grant on
	patience time.Duration // of a try
	start    int64
	until    int64 // when waiting ends

	trace  string // of Options.Trace
	claim  *claim
	queue  *localQueue // nil if the call does not queue in this process
	wakeup chan wakeup // wakes the call in its queue; holds one

	answered   bool   // the store has answered an Enter; guarded by the queue while the call waits there
	waitNumber uint64 // number of the wait that was reported; 0 if none was
	attempt    int
	lastErr    error             // of the last request, nil after an answer
	blocker    *driver.BusyError // who held the key in the last answer
	inTheWay   *HeldError        // who held the key when the call began to wait, for its events
	ahead      int
}

// acquire is every method that returns a lease.
func (c *Client) acquire(ctx context.Context, r request, opts []Option) (*Lease, error) {
	a := newAcquisition(ctx, c, r)
	defer a.free()
	l, err := a.run(opts)
	return l, a.refused(err)
}

// refused returns err, why the call got no lease, as the caller gets it, and reports it.
func (a *acquisition) refused(err error) error {
	if events := &a.c.events; err != nil && events.on != nil {
		e := a.event()
		e.Err, e.Wait, e.Waited = err, a.waitNumber, time.Duration(a.c.clock.Now()-a.start)
		errors.As(err, &e.HeldBy)
		events.send(EventRefused, e)
	}
	return wrap(a.op, a.key, err)
}

// event is an event of the call.
func (a *acquisition) event() Event {
	e := Event{Context: a.ctx, Key: a.key, Owner: a.owner, Note: a.note}
	e.Kind, e.Permits = kindOf(a.capacity, a.weight)
	return e
}

func newAcquisition(ctx context.Context, c *Client, r request) *acquisition {
	a, _ := c.acquisitions.Get().(*acquisition)
	if a == nil {
		a = &acquisition{wakeup: make(chan wakeup, 1)}
	}
	a.request, a.c, a.ctx = r, c, ctx
	a.start = c.clock.Now()
	return a
}

// free keeps a for another call. No other goroutine knows a any more. Without it, a pair takes
// 25 % more in BenchmarkFreeLock, and twice as much in BenchmarkHandOff/512.
func (a *acquisition) free() {
	c := a.c
	*a = acquisition{wakeup: a.wakeup}
	c.acquisitions.Put(a)
}

// run shares a lease that the context carries, or gets a new one.
func (a *acquisition) run(opts []Option) (*Lease, error) {
	if err := a.prepare(opts); err != nil {
		return nil, err
	}
	if l, err := a.share(); l != nil || err != nil {
		return l, err
	}
	if a.queuesLocally() {
		return a.lockInQueue()
	}
	if err := a.c.life.beginAcquisition(); err != nil {
		return nil, err
	}
	defer a.c.life.endWork()
	if err := a.beginNamed(); err != nil {
		return nil, err
	}
	defer a.endNamed()
	a.claim = a.newClaim()
	l, err := a.obtain()
	if err != nil && a.giveUp() {
		l, err = a.takeNamed()
	}
	if err != nil {
		return nil, a.refusal(err)
	}
	return l, nil
}

// beginNamed refuses a call with a ClaimID that cannot be kept, or that another call of this
// Client has.
func (a *acquisition) beginNamed() error {
	if a.claimID == "" {
		return nil
	}
	if _, err := a.c.detacher(); err != nil {
		return err
	}
	id := a.claimID
	if _, underWay := a.c.named.LoadOrStore(id, true); underWay {
		a.claimID = "" // of the other call
		return invalid("another call with this ClaimID is under way; wait until it has returned")
	}
	if len(a.c.schedule.Find(func(cl *claim) bool { return cl.id == id && cl.key != a.key })) > 0 {
		a.endNamed()
		return invalid("this ClaimID is that of a claim on another key; draw a new one for each wish")
	}
	return nil
}

func (a *acquisition) endNamed() {
	if a.claimID != "" {
		a.c.named.Delete(a.claimID)
	}
}

// prepare reads the options and refuses what cannot succeed.
func (a *acquisition) prepare(opts []Option) error {
	if a.op != opRevoke { // which has a key that no caller can name
		if err := checkKey(a.key); err != nil {
			return err
		}
	}
	if err := a.readOptions(a.takes(), a.try, opts); err != nil {
		return err
	}
	a.try = a.wait == 0
	if a.backoff == nil {
		a.backoff = a.c.options.Backoff
	}
	if err := a.checkKind(); err != nil {
		return err
	}
	if err := a.fitTimes(); err != nil {
		return err
	}
	if n := len(joinNote(a.note, "", a.lockDelay)); n > driver.MaxNote {
		return invalid("the note leaves no room for the LockDelay: %d bytes with both; at most %d", n, driver.MaxNote)
	}
	if a.ctx.Err() != nil {
		return errContext(a.ctx)
	}
	a.readTrace()
	a.until = never
	if a.wait > 0 && int64(a.wait) < never-a.start {
		a.until = a.start + int64(a.wait)
	}
	return nil
}

// takes returns the options that the call takes.
func (a *acquisition) takes() optionSet {
	switch a.op {
	case opOnce:
		return onceTakes
	case opAdopt:
		return adoptTakes
	}
	return lockTakes
}

// checkKind refuses a kind of lock that cannot be, or that the backend does not keep.
func (a *acquisition) checkKind() error {
	switch {
	case a.permits && (a.capacity < 1 || a.capacity >= driver.RW):
		return invalid("the size of the semaphore is %d; want 1 to %d", a.capacity, driver.RW-1)
	case a.weight < 1:
		return invalid("the weight is %d; it must be at least 1", a.weight)
	case a.weight > a.capacity:
		return invalid("the weight %d is larger than the size %d of the semaphore and would wait for ever",
			a.weight, a.capacity)
	case a.capacity < driver.RW && !a.c.info.Fair:
		return invalid("the %s backend cannot keep a semaphore safely", a.c.info.Name)
	}
	return nil
}

// fitTimes brings the times of the call into what the backend can do, or refuses them.
func (a *acquisition) fitTimes() error {
	c, info := a.c, &a.c.info
	d := cmp.Or(a.ttl, c.options.TTL)
	a.enterTTL = c.info.clampTTL(d)
	longest := c.info.clampTTL(c.options.TTL)
	a.patience = min(a.enterTTL, longest, tryPatience)
	switch {
	case a.noRenewal && a.enterTTL != d:
		return invalid("TTL is %v, with NoRenewal; the %s backend can do %v to %v", d, info.Name,
			c.info.minTTL(), c.info.maxTTL())
	case a.minHold > 0 && !info.Linger:
		return invalid("the %s backend cannot keep a key taken after its release; leave out MinHold", info.Name)
	case a.lockDelay > c.info.maxTTL()-a.enterTTL:
		return invalid("TTL %v and LockDelay %v are one lease in the store; the %s backend can do at most %v",
			a.enterTTL, a.lockDelay, info.Name, c.info.maxTTL())
	case a.minHold > c.info.maxTTL():
		return invalid("MinHold is %v; the %s backend can do at most %v", a.minHold, info.Name, c.info.maxTTL())
	}
	if every := renewEvery(a.enterTTL); a.progress > 0 && a.progress < every {
		return invalid("Progress is %v, less than the %v between two renewals of a lease of %v; make it longer, "+
			"or the TTL shorter", a.progress, every, a.enterTTL)
	}
	if a.enterTTL != d {
		c.events.warnOnce(a.event(), fmt.Errorf("a lease of %v is not possible on the %s backend; it is %v instead",
			d, info.Name, a.enterTTL))
	}
	if a.noRenewal && !a.try {
		a.shortenWait(longest)
	}
	return nil
}

// shortenWait has the claim wait with a lease of d at most: a waiter that dies keeps its place
// until its lease ends. Its full lease starts with the grant: by Enter itself if that is granted
// at once and the backend can, else by a renewal. Where a claim ends with its session, as
// on ZooKeeper, that is so whatever its lease, and the session may not allow a longer one later.
func (a *acquisition) shortenWait(d time.Duration) {
	if info := &a.c.info; !info.SharedLease || info.Linger {
		a.fullTTL, a.enterTTL = a.enterTTL, min(a.enterTTL, d)
	}
}

// tryPatience is how long a try asks a store that does not answer, at the most.
const tryPatience = 2 * time.Second

// enterTimeout bounds one Enter of a claim with this TTL.
func (a *acquisition) enterTimeout(ttl time.Duration) time.Duration {
	if a.try {
		return min(ttl/3, a.patience)
	}
	return min(ttl, a.c.info.clampTTL(a.c.options.TTL)) / 3 // a lease of hours is not tried for hours
}

// queuesLocally reports whether the call queues with the other goroutines of this process
// before it asks the store. All calls that do are alike, so that a claim can pass from one
// to another.
func (a *acquisition) queuesLocally() bool {
	return a.c.options.HandOff > 1 && a.capacity == driver.RW && a.weight == driver.RW &&
		!a.noRenewal && a.minHold == 0 && a.maxHold == 0 && a.progress == 0 && a.note == "" &&
		a.owner == "" && a.lockDelay == 0 && a.op != opOnce && a.claimID == "" &&
		a.enterTTL == a.c.info.clampTTL(a.c.options.TTL)
}

// newClaim makes a claim for the call.
func (a *acquisition) newClaim() *claim {
	cl := &claim{
		c: a.c, queue: a.queue, key: a.key, id: a.claimID, ttl: a.enterTTL + a.lockDelay, turn: turn{span: 1},
		wish: wish{int32(a.capacity), int32(a.weight), a.noRenewal, a.claimID != "", false},
	}
	if !cl.named {
		cl.id = rand.Text()
	}
	if a.queue != nil {
		cl.span = int32(a.c.options.HandOff)
	}
	a.short = a.fullTTL > 0
	if a.fullTTL > a.enterTTL {
		cl.writeRare().longestTTL = a.fullTTL + a.lockDelay
	}
	if a.note != "" || a.owner != "" || a.trace != "" || a.lockDelay > 0 {
		rare := cl.writeRare()
		rare.note, rare.owner, rare.lockDelay = joinNote(a.note, a.trace, a.lockDelay), a.owner, a.lockDelay
	}
	return cl
}

// refusal turns the reason why the call ended without a lease into its error.
func (a *acquisition) refusal(err error) error {
	var busy *driver.BusyError
	switch {
	case errors.As(err, &busy):
		return a.heldBy(busy)
	case err == errWaitOver:
		return a.lastHeard()
	case a.ctx.Err() != nil && errors.Is(err, a.ctx.Err()):
		return &endedError{errContext(a.ctx), a.lastHeard()}
	}
	if f, ok := err.(finalError); ok {
		return f.error
	}
	return err
}

// lastHeard is who holds the key, or that the store does not answer.
func (a *acquisition) lastHeard() error {
	switch {
	case a.answered:
		return a.heldBy(a.blocker)
	case a.lastErr != nil:
		return a.unavailable(a.lastErr)
	}
	return unavailable(a.ctx, errNoAnswer)
}

func (a *acquisition) heldBy(b *driver.BusyError) *HeldError {
	h := &HeldError{Key: a.key, Ahead: a.ahead}
	if b != nil {
		h.describe(b)
		h.Ahead = max(b.Ahead, a.ahead)
	}
	return h
}

// describe fills in what b says of the holder.
func (h *HeldError) describe(b *driver.BusyError) {
	h.Owner, h.Token, h.Since, h.Left = b.Owner, fence.Token(b.Token), b.Since, b.Left
	h.Note, h.Trace, _ = splitNote(b.Note)
}

// sendWaiting reports once that the call waits, and for whom: inTheWay returns
// that.
func (a *acquisition) sendWaiting(inTheWay func() *HeldError) {
	events := &a.c.events
	if a.waitNumber != 0 || events.on == nil {
		return
	}
	a.waitNumber = a.c.waits.Add(1)
	e := a.event()
	e.Wait, e.Ahead = a.waitNumber, a.ahead
	if h := inTheWay(); h.Token != 0 {
		a.inTheWay = h
	}
	e.HeldBy = a.inTheWay
	events.send(EventWaiting, e)
}

// firstInLine is who held the key in the last answer of the store.
func (a *acquisition) firstInLine() *HeldError { return a.heldBy(a.blocker) }

// endedError is the error of a call whose context ended: the context's error with its cause,
// and what the call waited for.
type endedError struct{ ctx, why error }

func (e *endedError) Error() string   { return e.ctx.Error() + " while waiting: " + e.why.Error() }
func (e *endedError) Unwrap() []error { return []error{e.ctx, e.why} }

// errContext is the error of a context that has ended, with its cause.
func errContext(ctx context.Context) error {
	err := ctx.Err()
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", err, cause)
	}
	return err
}
