package fencelock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/fence"
)

var (
	errLate     = errors.New("the answer came after the lease it speaks of had ended")
	errNoAnswer = errors.New("no answer came in time")
	errWaitOver = errors.New("wait over") // never shown
)

// request is one call that wants a lease.
type request struct {
	call
	op, key          string
	capacity, weight int64
	span             int64
	permits          bool          // on a semaphore
	lease            time.Duration // TTL of the claim as it enters
	hold             time.Duration // TTL from the grant on, if it differs: FixedLease
	patience         time.Duration // of one TryLock, and three times that of one call of Enter
	start            int64
	asked            int64 // the clock, where it was read a moment ago; 0 if it was not
	until            int64 // when waiting ends

	entered bool // an Enter was answered
	waits   bool // a FixedLease that found the line taken, and now waits in it
	told    bool // Hooks.Waiting was
	attempt int
	lastErr error
	busy    *driver.BusyError // who was in the way when last heard
	ahead   int
}

func (r *request) try() bool       { return r.wait == 0 }
func (r *request) exclusive() bool { return r.capacity == driver.RW && r.weight == driver.RW }

// acquire is every method that returns a lease.
func (c *Client) acquire(ctx context.Context, r *request, try bool, opts []Option) (*Lease, error) {
	l, err := c.acquireRaw(ctx, r, try, opts)
	if err == nil {
		return l, nil
	}
	if h := c.o.Hooks.Refused; h != nil {
		e := Event{Key: r.key, Err: err, Waited: time.Duration(c.clock.now() - r.start)}
		errors.As(err, &e.HeldBy)
		c.emit(h, e)
	}
	return nil, wrap(r.op, r.key, err)
}

func (c *Client) acquireRaw(ctx context.Context, r *request, try bool, opts []Option) (*Lease, error) {
	r.start = c.clock.now()
	r.asked = r.start
	if c.bad != nil {
		return nil, c.bad
	}
	if err := checkKey(r.key); err != nil {
		return nil, err
	}
	var err error
	if r.call, err = settle(try, opts); err != nil {
		return nil, err
	}
	if err := c.fit(r); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, ended2(ctx)
	}
	r.until = never
	if r.wait > 0 && int64(r.wait) < never-r.start {
		r.until = r.start + int64(r.wait)
	}

	c.mu.Lock()
	if l, err := c.share(ctx, r); l != nil || err != nil {
		c.mu.Unlock()
		return l, err
	}
	if c.stage != open {
		c.mu.Unlock()
		return nil, ErrClosed
	}
	c.calls++
	if c.gated(r) {
		r.span = int64(c.o.HandOff)
		l, handed, err := c.throughGate(ctx, r) // unlocks
		if !handed {
			c.finish()
		}
		return l, err
	}
	r.span = 1
	cl := c.newClaim(r)
	c.mu.Unlock()
	var l *Lease
	for l == nil && err == nil {
		err = c.stand(ctx, r, cl)
		c.mu.Lock()
		switch {
		case err != nil:
		case c.stage != open: // Close may have counted what is held already
			err = ErrClosed
		case cl.state == held:
			l = c.grantTo(ctx, r, cl, r.asked, false)
		}
		c.mu.Unlock()
	}
	if err != nil {
		c.giveUp(ctx, r, cl)
	}
	c.finish()
	if err != nil {
		return nil, c.refusal(ctx, r, err)
	}
	return l, nil
}

// finish ends what began with c.calls++.
func (c *Client) finish() {
	c.mu.Lock()
	c.calls--
	c.moved()
	c.mu.Unlock()
}

// ended2 is the error of a ctx that has ended: its own and its cause.
func ended2(ctx context.Context) error {
	err := ctx.Err()
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", err, cause)
	}
	return err
}

// gated reports whether r queues with the other goroutines of this process before
// it queues in the store.
func (c *Client) gated(r *request) bool {
	return c.o.HandOff > 1 && r.exclusive() && !r.fixed && r.minHold == 0 && r.maxHold == 0 &&
		r.lease == c.ownTTL() && r.note == "" && r.op != opOnce
}

func (c *Client) ownTTL() time.Duration { return c.clamp(c.o.TTL) }

func (c *Client) clamp(d time.Duration) time.Duration {
	lo, hi := max(c.info.MinTTL, 10*minTTL), c.info.MaxTTL
	if d < lo {
		return lo
	}
	if hi <= 0 {
		hi = longestTTL
	}
	return min(d, hi)
}

// longestTTL keeps sums of times from overflowing where a backend knows no limit.
const longestTTL = 100 * 365 * 24 * time.Hour

// fit brings the times of r into what the backend can do, or refuses them, and
// refuses what the backend does not keep.
func (c *Client) fit(r *request) error {
	d := r.ttl
	if d == 0 {
		d = c.o.TTL
	}
	r.lease = c.clamp(d)
	r.patience = min(r.lease, c.ownTTL()) // a FixedLease of hours is no reason to wait for hours
	name := c.info.Name
	switch {
	case r.permits && (r.capacity < 1 || r.capacity >= driver.RW):
		return invalid("the size of the semaphore is %d; want 1 to %d", r.capacity, driver.RW-1)
	case r.weight < 1:
		return invalid("the weight is %d; it must be at least 1", r.weight)
	case r.weight > r.capacity:
		return invalid("the weight %d is larger than the size %d of the semaphore and would wait for ever", r.weight, r.capacity)
	case r.capacity < driver.RW && !c.info.Semaphore:
		return invalid("the %s backend cannot keep a semaphore safely", name)
	case r.fixed && r.lease != d:
		return invalid("FixedLease is %v; the %s backend can do %v to %v", d, name, max(c.info.MinTTL, 10*minTTL), c.info.MaxTTL)
	case r.minHold > 0 && !c.info.Linger:
		return invalid("the %s backend cannot keep a key taken after its release; leave out MinHold", name)
	case c.info.MaxTTL > 0 && r.minHold > c.info.MaxTTL:
		return invalid("MinHold is %v; the %s backend can do at most %v", r.minHold, name, c.info.MaxTTL)
	}
	if r.fixed && !r.try() {
		r.hold = r.lease
	}
	if r.lease != d {
		c.warnOnce(r.key, fmt.Errorf("a lease of %v is not possible on the %s backend; it is %v instead", d, name, r.lease))
	}
	return nil
}

// refusal turns the reason for which stand gave up into what the caller is told.
func (c *Client) refusal(ctx context.Context, r *request, err error) error {
	var busy *driver.BusyError
	switch {
	case errors.As(err, &busy):
		return c.heldBy(r, busy)
	case err == errWaitOver || ctx.Err() != nil && errors.Is(err, ctx.Err()):
		var why error
		switch {
		case r.entered:
			why = c.heldBy(r, r.busy)
		case r.lastErr != nil:
			why = unavailable(ctx, r.lastErr)
		default:
			why = unavailable(ctx, errNoAnswer)
		}
		if err == errWaitOver {
			return why
		}
		return &endedError{ended2(ctx), why}
	}
	if f, ok := err.(finalError); ok {
		return f.error
	}
	return err
}

// endedError is what a call whose ctx ended answers: the error of ctx and its
// cause, and what it had been waiting for.
type endedError struct{ ctx, why error }

func (e *endedError) Error() string   { return e.ctx.Error() + " while waiting: " + e.why.Error() }
func (e *endedError) Unwrap() []error { return []error{e.ctx, e.why} }

func (c *Client) heldBy(r *request, b *driver.BusyError) *HeldError {
	h := &HeldError{Key: r.key, Ahead: r.ahead}
	if b != nil {
		h.Owner, h.Note, h.Token, h.Since, h.Left = b.Owner, b.Note, fence.Token(b.Token), b.Since, b.Left
		h.Ahead = max(b.Ahead, r.ahead)
	}
	return h
}

// stand brings cl to a grant whose lease has time left, or says why not. The
// caller's goroutine does all of it; renewals of the waiting claim come from the
// Client's clock. It may be called again for the same claim by another goroutine,
// which then goes on where the first one stopped.
func (c *Client) stand(ctx context.Context, r *request, cl *claim) error {
	for {
		if err := c.mayWait(ctx, r); err != nil {
			return err
		}
		c.mu.Lock()
		st := cl.state
		c.mu.Unlock()

		var err error
		switch st {
		case fresh:
			err = c.enter(ctx, r, cl)
		case waiting:
			err = c.await(ctx, r, cl)
		case held:
			var done bool
			if done, err = c.confirm(ctx, r, cl); done {
				return nil
			}
		default:
			if cl.broken {
				return cl.has().lost
			}
			c.reenter(cl)
			r.entered = false // who is in line now nobody knows
		}
		if err == nil {
			continue
		}
		if final(err) {
			return err
		}
		// A call that ctx or Wait has cut short says that its time was over. What was wrong
		// said the one before it.
		if r.lastErr == nil || c.mayWait(ctx, r) == nil {
			r.lastErr = err
		}
		r.attempt++
		if g := cl.gate; g != nil {
			c.mu.Lock()
			g.lastErr = r.lastErr
			c.mu.Unlock()
		}
		if r.try() && !errors.As(err, new(*driver.BusyError)) && c.clock.now() >= r.start+int64(r.patience) {
			return unavailable(ctx, err)
		}
		c.pause(ctx, r, c.o.Backoff(r.attempt))
	}
}

// mayWait says whether the call may go on: ctx, Wait and the Client's end.
func (c *Client) mayWait(ctx context.Context, r *request) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case c.stop.Err() != nil:
		return ErrClosed
	case r.until != never && c.clock.now() >= r.until:
		return errWaitOver
	}
	return nil
}

// finalError is an answer that ends a call: asking again would not change it.
type finalError struct{ error }

func (e finalError) Unwrap() error { return e.error }

func final(err error) bool { return errors.As(err, new(finalError)) }

// pause waits for d, clipped to what is left of ctx and Wait.
func (c *Client) pause(ctx context.Context, r *request, d time.Duration) {
	d = min(d, time.Duration(r.until-c.clock.now()))
	if r.try() {
		d = min(d, time.Duration(r.start+int64(r.patience)-c.clock.now()))
	}
	t := timerFor(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	case <-c.stop.Done():
	}
}

// limit is the context of one driver call for r that begins now: d long, within Wait.
func (c *Client) limit(ctx context.Context, r *request, now int64, d time.Duration) *callCtx {
	if r.until != never {
		d = min(d, time.Duration(r.until-now))
	}
	return c.callFor(ctx, now, d)
}

// enter sends one Enter for cl.
func (c *Client) enter(ctx context.Context, r *request, cl *claim) error {
	d := c.asks(cl)
	d.NoWait = r.try() || !c.info.Fair || (r.hold > 0 && !r.waits)
	if r.hold > 0 && r.waits {
		d.TTL = min(r.lease, c.ownTTL()) // a waiter with a lease of hours would jam the line if it died
	}
	// The lease counts from before the sending. How long before does not matter to
	// safety, so a clock that was read a moment ago will do.
	sent := r.asked
	if sent == 0 {
		sent = c.clock.now()
	}
	r.asked = 0
	call := c.limit(ctx, r, sent, min(d.TTL, r.patience)/3)
	defer call.end()
	t, err := c.b.Enter(call, d)
	now := c.clock.now()

	if err != nil {
		return c.notEntered(r, cl, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !cl.answered(sent, now, t.Left) {
		cl.unsure = true
		return errLate
	}
	r.entered, r.lastErr, r.attempt = true, nil, 0
	c.joined(cl, &d, &t, now)
	if t.Mixed {
		c.warnOnce(r.key, fmt.Errorf("%s is in use with another size than %d; each claim is judged by its own", printable(r.key), d.Capacity))
	}
	if !t.Granted {
		cl.queued = true
		r.busy, r.ahead = t.Head, t.Ahead
		if r.try() {
			// Only a repeated Enter comes here: the answer to the first one was lost.
			return finalError{c.heldBy(r, t.Head)}
		}
		if cl.gate != nil {
			c.refuseTries(cl.gate, r)
		}
		c.tellWaiting(r)
	}
	return nil
}

// joined takes in t, the store's answer to d, by which cl is in line. c.mu is held.
func (c *Client) joined(cl *claim, d *driver.Claim, t *driver.Ticket, now int64) {
	if g := cl.gate; g != nil {
		g.heard++
		g.lastErr = nil
	}
	cl.ttl = d.TTL
	if t.TTL > 0 {
		cl.ttl = t.TTL
	}
	cl.token, cl.granted, cl.noWait = t.Token, t.Granted, d.NoWait
	cl.learn(t)
	cl.state = waiting
	if t.Granted {
		c.hold(cl, now)
	}
	c.plan(cl, now)
}

// notEntered takes in err, the answer to an Enter of cl.
func (c *Client) notEntered(r *request, cl *claim, err error) error {
	var busy *driver.BusyError
	var permanent *driver.PermanentError
	switch {
	case errors.As(err, &busy):
		r.entered, r.busy, r.ahead = true, busy, busy.Ahead
		c.heard(cl, busy)
		switch {
		case r.try():
			return finalError{busy}
		case r.hold > 0 && !r.waits && c.info.Fair:
			r.waits = true
			return nil
		}
		c.tellWaiting(r)
		return busy // a backend that cannot queue is asked again after a pause
	case errors.Is(err, driver.ErrKind):
		return finalError{fmt.Errorf("%w; use another key, or wait until it is free", ErrKind)}
	case errors.As(err, &permanent), errors.Is(err, driver.ErrClosed):
		return finalError{unavailable(context.Background(), err)}
	case driver.Gone(err):
		c.mu.Lock()
		defer c.mu.Unlock()
		reason, operator := goneDetail(err)
		cl.state, cl.broken = ended, operator
		cl.gets().lost = cl.lossOf(ErrBroken, 0, reason)
		return nil
	case errors.As(err, new(driver.ErrBallot)):
		return finalError{unavailable(context.Background(), err)}
	default:
		cl.unsure = true
		return err
	}
}

func (c *Client) tellWaiting(r *request) {
	if r.told || c.o.Hooks.Waiting == nil {
		return
	}
	r.told = true
	e := Event{Key: r.key, Ahead: r.ahead}
	if r.busy != nil {
		e.HeldBy = c.heldBy(r, r.busy)
	}
	c.emit(c.o.Hooks.Waiting, e)
}

// learn keeps what an answer to an Enter says of the line. c.mu is held.
func (cl *claim) learn(t *driver.Ticket) {
	if cl.seldom != nil || t.Mark != "" || t.Head != nil || t.Ahead != 0 {
		s := cl.gets()
		s.mark, s.head, s.ahead = t.Mark, t.Head, t.Ahead
	}
}

// hold marks cl as granted. c.mu is held.
func (c *Client) hold(cl *claim, now int64) {
	cl.state = held
	cl.atRisk = false
}

// await waits in line until something may have changed.
func (c *Client) await(ctx context.Context, r *request, cl *claim) error {
	c.mu.Lock()
	if cl.state != waiting {
		c.mu.Unlock()
		return nil
	}
	t := c.ticket(cl)
	// The driver returns after about a second by itself; the limit is for one that hangs.
	call := c.limit(ctx, r, c.clock.now(), 2*time.Second+t.TTL/3)
	defer call.end()
	woken, wake := context.WithCancel(call)
	defer wake()
	cl.gets().wake = wake
	c.mu.Unlock()

	got, err := c.b.Await(woken, t)

	c.mu.Lock()
	defer c.mu.Unlock()
	cl.gets().wake = nil
	now := c.clock.now()
	switch {
	case cl.state != waiting:
		return nil // lost meanwhile
	case now >= cl.deadline.Load():
		c.lose(cl, ErrExpired, "")
		return nil
	case err == nil:
		r.lastErr, r.attempt = nil, 0
		if got.Granted {
			cl.granted, cl.gets().mark, cl.gets().ahead = true, got.Mark, 0
			c.hold(cl, now)
			c.plan(cl, now)
			return nil
		}
		r.ahead, cl.gets().ahead = got.Ahead, got.Ahead
		if got.Head != nil {
			r.busy, cl.gets().head = got.Head, got.Head
		}
		return nil
	case driver.Gone(err):
		reason, operator := goneDetail(err)
		c.broken(cl, reason, operator)
		return nil
	case woken.Err() != nil:
		return nil // the call was cut short by us: the caller looks why
	case errors.As(err, new(*driver.PermanentError)), errors.Is(err, driver.ErrClosed):
		return finalError{unavailable(context.Background(), err)}
	}
	return err
}

// heard notes for those behind the gate of cl that the store answered, and who it
// says is in the way.
func (c *Client) heard(cl *claim, busy *driver.BusyError) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if g := cl.gate; g != nil {
		g.heard++
		g.lastErr = nil
		cl.gets().head, cl.gets().ahead = busy, busy.Ahead
	}
}

// confirm reports whether the grant may be given to its caller as it is. One with
// less than two thirds of its lease left is renewed first, and so is one whose
// lease is to be another from now on.
func (c *Client) confirm(ctx context.Context, r *request, cl *claim) (bool, error) {
	c.mu.Lock()
	now := c.clock.now()
	if cl.state == held && now >= cl.deadline.Load() {
		c.lose(cl, ErrExpired, "")
	}
	if cl.state != held {
		c.mu.Unlock()
		return false, nil
	}
	t := c.ticket(cl)
	relength := r.hold > 0 && r.waits && !cl.whole
	if !relength && cl.deadline.Load()-now >= 2*believed(t.TTL)/3 {
		r.asked = now
		c.mu.Unlock()
		return true, nil
	}
	had := t.TTL
	if relength {
		t.TTL = r.hold
	}
	c.mu.Unlock()

	sent := c.clock.now()
	call := c.limit(ctx, r, sent, min(t.TTL, had)/3)
	defer call.end()
	err := one(c.b.Renew(call, []driver.Ticket{t}))
	now = c.clock.now()

	c.mu.Lock()
	defer c.mu.Unlock()
	if cl.state != held {
		return false, nil
	}
	if err == nil && relength {
		cl.ttl, cl.whole = t.TTL, true
	}
	c.renewed(cl, t.TTL, sent, now, err)
	if err != nil && cl.state == held {
		return false, err
	}
	r.asked = now
	return cl.state == held && err == nil, nil
}

// one is the only answer of a renewal of one ticket.
func one(errs []error) error {
	if len(errs) != 1 {
		return fmt.Errorf("the backend answered %d of 1 renewals", len(errs))
	}
	return errs[0]
}

// reenter gives a claim that ended while it waited a new ID, at the end of the
// line. The old ID is laid to rest behind.
func (c *Client) reenter(cl *claim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cl.state != ended {
		return
	}
	c.sched.drop(cl)
	if cl.over > 0 || cl.unsure {
		old := &claim{
			key: cl.key, id: cl.id, token: cl.token, ttl: cl.ttl, granted: cl.granted, noWait: cl.noWait,
			capacity: cl.capacity, weight: cl.weight, span: cl.span, unsure: cl.unsure, index: -1, endAt: never,
		}
		c.oweLeave(old, c.clock.now(), driver.Exit{})
	}
	cl.id, cl.token, cl.granted = c.ids.draw(), 0, false
	if note := cl.has().note; note == "" {
		cl.seldom = nil
	} else {
		cl.seldom = &seldom{note: note}
	}
	cl.state, cl.unsure, cl.atRisk, cl.busy, cl.broken = fresh, false, false, false, false
	cl.exiting, cl.whole, cl.queued, cl.crowded = false, false, false, false
	cl.since, cl.used, cl.base, cl.sent, cl.over, cl.tries = 0, 0, 0, 0, 0, 0
	cl.deadline.Store(0)
	if g := cl.gate; g != nil {
		for w := g.first; w != nil; w = w.next {
			w.knew, w.heard = false, g.heard
		}
	}
}

// giveUp takes a claim that nobody here wants any more out of the line: now, if the
// caller has time and the store answers; behind its back otherwise.
func (c *Client) giveUp(ctx context.Context, r *request, cl *claim) {
	c.mu.Lock()
	if cl.state == fresh && !cl.unsure || cl.state == leaving {
		c.mu.Unlock()
		return
	}
	if cl.state == ended && !cl.unsure && cl.over == 0 {
		c.mu.Unlock()
		return
	}
	if ctx.Err() != nil || c.stop.Err() != nil || r.lastErr != nil {
		c.quit(cl, driver.Exit{})
		c.mu.Unlock()
		return
	}
	c.mu.Unlock()
	c.leave(ctx, cl, driver.Exit{}, min(closeBudget, r.lease/3)) // what fails goes on behind
}
