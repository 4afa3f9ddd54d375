package fencelock

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/internal/limit"
)

// Line is the line of one key, as it was at one moment.
type Line struct {
	Key    string
	Last   fence.Token // the largest token drawn so far; 0 if none is remembered
	Claims []Standing  // the holders, then the waiters in order of arrival

	// The last slot that Once has finished, when it was finished by the clock of that process, and
	// its owner. Done is zero if there is none; Slot is also zero for once forever.
	Slot, Done time.Time
	DoneBy     string
}

// Standing is one claim in a line.
type Standing struct {
	ID          string // the beginning of the claim's ID: enough to tell claims apart
	Owner, Note string
	Trace       string        // of Options.Trace of its process
	Kind        string        // how it shares the key: "exclusive", "shared" or "permits"
	Permits     int64         // that it has or wants of a semaphore
	Size        int64         // of that semaphore
	Token       fence.Token   // the first of its tokens, which it draws as it joins the line; see HasToken
	span        int64         // its tokens: how many holders of one process the claim may serve
	Granted     bool          // it holds the key
	Lingering   bool          // its holder has left or was broken; MinHold or LockDelay keeps the key taken
	Since       time.Time     // granted since, or waiting since, by the store's clock
	Left        time.Duration // of its lease, when it was looked at
	Reason      string        // of the Break with notice that ends it after Left; empty without one
}

// HasToken reports whether t is one of the tokens of the claim: one for each holder of its
// process that the claim may serve.
func (s *Standing) HasToken(t fence.Token) bool {
	return t >= s.Token && int64(t-s.Token) < max(s.span, 1)
}

func lineOf(d *driver.Line) Line {
	l := Line{Key: d.Key, Last: fence.Token(d.Last)}
	if r, ok := readMark(d.Mark); ok {
		l.Slot, l.Done, l.DoneBy = r.slot, r.done, r.owner
	}
	var waiters []Standing
	for _, c := range d.Claims {
		s := Standing{
			ID: c.ID, Owner: c.Owner, Note: c.Note, Trace: c.Trace, Token: fence.Token(c.Token), span: c.Span,
			Granted: c.Granted, Lingering: c.Lingering, Since: c.Since, Left: c.Left, Reason: c.Reason,
		}
		s.setKind(c.Capacity, c.Weight)
		if c.Granted {
			l.Claims = append(l.Claims, s)
		} else {
			waiters = append(waiters, s)
		}
	}
	l.Claims = append(l.Claims, waiters...)
	return l
}

// Line returns the line of key: its holders and its waiters. The line may have changed when
// Line returns. An unused key has no claims. It costs one round trip.
func (c *Client) Line(ctx context.Context, key string) (Line, error) {
	const op = "line"
	if err := c.ready(key); err != nil {
		return Line{}, wrap(op, key, err)
	}
	call := c.life.acquiring.Call(ctx, c.clock.Now(), c.options.TTL/3)
	defer call.End()
	l, err := c.backend.Line(call, key)
	if err != nil {
		return Line{}, wrap(op, key, c.storeError(ctx, err))
	}
	return lineOf(&l), nil
}

// Lines yields all lines with at least one claim whose keys begin with prefix, in no
// particular order. It stops after the first error.
func (c *Client) Lines(ctx context.Context, prefix string) iter.Seq2[Line, error] {
	return func(yield func(Line, error) bool) {
		if err := c.ready("x"); err != nil {
			yield(Line{}, wrap("lines", prefix, err))
			return
		}
		for l, err := range c.backend.Lines(ctx, prefix) {
			if err != nil {
				yield(Line{}, wrap("lines", prefix, unavailable(ctx, err)))
				return
			}
			if !yield(lineOf(&l), nil) {
				return
			}
		}
	}
}

// setKind sets Kind, and Permits and Size of a semaphore's claim.
func (s *Standing) setKind(capacity, weight int64) {
	switch {
	case capacity != driver.RW:
		s.Kind, s.Permits, s.Size = "permits", weight, capacity
	case weight == driver.RW:
		s.Kind = "exclusive"
	default:
		s.Kind = "shared"
	}
}

// Break says how Client.Break ends a claim: for which Reason, after which Notice, and how long the
// key stays closed then (Delay).
type Break = driver.Break

// Break ends the grant of key that has the token, or the waiting claim that would have got
// it, also if it belongs to another process. Any token of a claim's span will do. The
// holder gets the reason: at once if it holds through this Client or if the backend pushes,
// with its next renewal otherwise. It costs one round trip. After ErrUnavailable, and
// after ErrClosed from a Client that was closed meanwhile, the outcome is unknown, and
// Break may be called again.
//
// Without a Notice the lease of the holder ends as soon as the holder hears of the break, and the
// reason is the cause of its context. With a Notice the holder keeps the lease until the notice is
// over: Lease.Revoked is closed, and the holder should finish its work and release the lease. If
// it does not, the store ends the grant at that time, whatever renews it, and the context ends with
// ErrBroken and the reason. The store does that by itself: no process has to stay. A waiting claim
// ends at once. A notice below the backend's shortest lease lasts as long as the shortest lease.
//
// The holder may still be working when the next claim is granted. Fencing tokens protect
// the resource in that case. With a Delay above zero the key stays closed for that long
// after the end of the grant, and Line shows the claim as lingering. A holder that releases in time
// opens the key at once. A delay that is longer than a third
// of the holder's TTL, one renewal and its longest write lets the last write of the holder
// land before another holder begins. A delay of 0 is the LockDelay of the lease, if it has one. A
// delay below 0 opens the key at once. A delay below the
// backend's shortest lease lasts as long as the shortest lease.
//
// Break may be repeated, and does not shorten the notice and the delay that were promised before.
// Of two notices the later end counts, and a Break without a Notice ends the grant now. For a
// claim that lingers already, because it was broken or because
// of MinHold, Break with a delay of 0 changes nothing and returns nil. With a delay above 0
// the key stays closed for that long from now on. A delay below 0 ends the lingering.
//
// If no claim has the token, nothing is changed and the error is ErrNoClaim. A Notice or a Delay
// that is longer than the backend can keep is ErrInvalid, and so is any Delay on ZooKeeper or a quorum.
func (c *Client) Break(ctx context.Context, key string, token fence.Token, how Break) (err error) {
	const op = "break"
	if err := c.ready(key); err != nil {
		return wrap(op, key, err)
	}
	if token <= 0 {
		return wrap(op, key, invalid("token %d; want the token of the grant to end, as Line shows it", token))
	}
	if err := checkText("the reason", how.Reason, limit.Note); err != nil {
		return wrap(op, key, err)
	}
	if how, err = c.info.breakable(how); err != nil {
		return wrap(op, key, err)
	}
	sent := c.clock.Now()
	call := c.life.acquiring.Call(ctx, sent, c.options.TTL/3)
	defer call.End()
	if err := c.backend.Break(call, key, int64(token), how); err != nil {
		if driver.Gone(err) {
			return wrap(op, key, fmt.Errorf("%w %s; nothing was changed: %w", ErrNoClaim, token, err))
		}
		return wrap(op, key, c.storeError(ctx, err))
	}
	e := Event{Context: ctx, Key: key, Standing: Standing{Token: token, Left: how.Notice, Reason: how.Reason}}
	c.events.send(EventBroke, e)
	gone := driver.GoneError{Reason: how.Reason, Broken: true, Left: how.Notice}
	for _, cl := range c.schedule.Find(func(cl *claim) bool { return cl.key == key }) {
		cl.brokenHere(token, gone, sent)
	}
	return nil
}

// storeError returns the error of a request to which the store did not respond. Close may have cut it
// short.
func (c *Client) storeError(ctx context.Context, err error) error {
	if c.life.acquiring.Err() != nil && ctx.Err() == nil {
		return fmt.Errorf("%w: %w", ErrClosed, err)
	}
	return unavailable(ctx, err)
}

func (c *Client) ready(key string) error {
	if err := checkKey(key); err != nil {
		return err
	}
	if !c.life.open() {
		return ErrClosed
	}
	return nil
}

// notice is that of a Break, as the holder has heard of it.
type notice struct {
	reason string
	end    int64 // when the holder stops believing in the claim
}

func (cl *claim) noticeEndLocked() int64 {
	if n := cl.readRare().notice; n != nil {
		return n.end
	}
	return never
}

func (cl *claim) tellNoticeLocked(reason string, end, now int64) {
	rare := cl.writeRare()
	first := rare.notice == nil
	rare.notice = &notice{reason, end}
	cl.deadline.Store(min(cl.deadline.Load(), end))
	if first && cl.holder != nil {
		cl.holder.revokeLocked(now)
	}
}

// hintNoticeLocked notes a notice that the store did not confirm to this claim: an alarm, or a Break
// of the own Client. Left is counted from time at. A renewal that is sent at once brings the true
// end, which an earlier notice may have set, and which the delay of an alarm makes uncertain.
func (cl *claim) hintNoticeLocked(g driver.GoneError, at, now int64) {
	if cl.state != stateHeld {
		return // what waits is ended, not given notice
	}
	end := cl.noticeEndLocked()
	if end == never {
		end = at + believed(g.Left)
	}
	cl.tellNoticeLocked(g.Reason, end, now)
	if !cl.lapseLocked(now) {
		cl.retryAt = now
		cl.planLocked(now)
	}
}

// noticedLocked notes that the store responded to a renewal, sent at time sent, with a notice. The
// claim then lasts until the end of that, whatever the end of its lease; still, the holder counts on
// no more than on a lease that was renewed.
func (cl *claim) noticedLocked(g driver.GoneError, ttl time.Duration, sent, now int64) {
	counted := cl.countedLocked(ttl)
	lease := max(cl.deadline.Load(), sent+believed(counted))
	end := sent + believed(g.Left)
	cl.tellNoticeLocked(g.Reason, end, now)
	cl.deadline.Store(min(lease, end))
	cl.sent, cl.retryAt, cl.failures = sent, sent+int64(renewEvery(counted)), 0
	cl.leaseEnd = now + int64(g.Left)
	if !cl.lapseLocked(now) {
		cl.planLocked(now)
	}
}
