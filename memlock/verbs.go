package memlock

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// errLeft is the answer to a claim that has left.
var errLeft = driver.GoneError{Reason: "it has left"}

// step runs f on the line of key as one atomic step, unless ctx has ended.
func (s *Store) step(ctx context.Context, key string, f func(q *queue, now instant) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t := time.Now() // with mu held, so that steps and their instants have the same order
	now := instant{t, t.Sub(s.start)}
	return f(s.line(key, now), now)
}

// Enter joins the line of c.Key. If the claim with c.ID is in line already, Enter
// starts its lease again.
func (s *Store) Enter(ctx context.Context, c driver.Claim) (t driver.Ticket, err error) {
	if err := c.Validate(s.Info()); err != nil {
		return t, err
	}
	err = s.step(ctx, c.Key, func(q *queue, now instant) error {
		own := q.findLive(c.ID)
		if own != nil {
			if err := c.CheckFound(own.Capacity, own.Weight); err != nil {
				return err
			}
			q.renew(own, c.Lease(own.granted), now)
		} else {
			if err := s.refusal(q, &c, now); err != nil {
				return err
			}
			s.keep(c.Key, q, now)
			own = q.join(c, now)
		}
		t = q.ticket(own, now)
		return nil
	})
	return t, err
}

// refusal says why c may not join q, or returns nil.
func (s *Store) refusal(q *queue, c *driver.Claim, now instant) error {
	if gone, ok := s.tombstones.find(c.Ref(), now); ok {
		return gone
	}
	if q.find(c.ID) != nil {
		return errLeft // it lingers: a late repeat of its Enter must not bring it back
	}
	if len(q.claims) > 0 {
		if err := c.CheckKind(q.claims[0].Capacity); err != nil {
			return err
		}
		if c.NoWait && q.total+c.Weight > c.Capacity {
			return q.busy(len(q.claims), now)
		}
	}
	return nil
}

// maxAwait is the longest that Await waits before it looks again.
const maxAwait = time.Second

// Await returns when the claim of t is granted or gone, when a claim of its line
// may have expired, or after a second.
func (s *Store) Await(ctx context.Context, t driver.Ticket) (got driver.Ticket, err error) {
	var wake <-chan struct{} // nil unless the claim waits
	var soonest time.Duration
	look := func(q *queue, now instant) error {
		c := q.findLive(t.ID)
		if c == nil {
			return s.gone(t.Ref(), now)
		}
		got = q.ticket(c, now)
		if c.granted {
			return nil
		}
		if c.wake == nil {
			c.wake = make(chan struct{})
		}
		wake, soonest = c.wake, min(maxAwait, q.nextExpiry-now.mono)
		return nil
	}
	if err = s.step(ctx, t.Key, look); wake == nil {
		return got, err
	}
	timer := time.NewTimer(soonest)
	defer timer.Stop()
	select {
	case <-wake:
	case <-timer.C:
	case <-ctx.Done():
	}
	err = s.step(ctx, t.Key, look)
	return got, err
}

// Renew starts the leases of ts again.
func (s *Store) Renew(ctx context.Context, ts []driver.Ticket) []error {
	errs := make([]error, len(ts))
	for i := range ts {
		t := &ts[i]
		errs[i] = s.step(ctx, t.Key, func(q *queue, now instant) error {
			c := q.findLive(t.ID)
			if c == nil {
				return s.gone(t.Ref(), now)
			}
			q.renew(c, t.TTL, now)
			return nil
		})
	}
	return errs
}

// Leave takes the claim of t out of its line and wakes everyone that this makes
// granted.
func (s *Store) Leave(ctx context.Context, t driver.Ticket, e driver.Exit) error {
	return s.step(ctx, t.Key, func(q *queue, now instant) error {
		c := q.findLive(t.ID)
		if e.IfWaiting && c != nil && c.granted {
			return driver.ErrGranted
		}
		var err error
		if c == nil && q.markedBy != t.ID {
			err = s.gone(t.Ref(), now)
		}
		if e.Tombstone {
			s.tombstones.put(t.Ref(), now.mono+clampTTL(t.TTL), errLeft, now)
		}
		if c == nil {
			return err
		}
		if e.Mark != "" && c.granted {
			q.mark, q.markedBy = max(q.mark, e.Mark), c.ID
		}
		if e.Linger > 0 {
			q.linger(c, now.mono+clampTTL(e.Linger))
			return nil
		}
		q.remove(c)
		q.grant(now)
		return nil
	})
}

// Reserve lengthens the span of t if that claim is alone in line and nobody has
// drawn a token since.
func (s *Store) Reserve(ctx context.Context, t driver.Ticket, span int64) (done bool, err error) {
	if span < 1 || span > driver.MaxSpan {
		return false, &driver.PermanentError{Err: fmt.Errorf(
			"memory: a claim on %q reserves 1 to %d tokens, not %d", t.Key, driver.MaxSpan, span)}
	}
	err = s.step(ctx, t.Key, func(q *queue, _ instant) error {
		c := q.findLive(t.ID)
		if c == nil || len(q.claims) > 1 || q.lastToken != c.token+c.Span-1 {
			return nil
		}
		c.Span = max(c.Span, span)
		q.lastToken = c.token + c.Span - 1
		done = true
		return nil
	})
	return done, err
}

// Break ends the claim of key whose span holds token, at once or after linger, and wakes
// everyone that this makes granted. It notifies the alarms.
func (s *Store) Break(ctx context.Context, key string, token int64, reason string, linger time.Duration) error {
	gone := driver.GoneError{Reason: reason, Broken: true}
	var id string
	err := s.step(ctx, key, func(q *queue, now instant) error {
		i := slices.IndexFunc(q.claims, func(c *claim) bool { return token >= c.token && token-c.token < c.Span })
		if i < 0 {
			return driver.GoneError{}
		}
		c := q.claims[i]
		if c.lingering && linger == 0 {
			return nil
		}
		id = c.ID
		until := c.expires
		if linger > 0 && c.granted {
			end := now.mono + clampTTL(linger)
			if c.lingering {
				end = max(end, c.expires)
			}
			q.linger(c, end)
			until = max(until, c.expires)
		} else {
			q.remove(c)
			q.grant(now)
		}
		s.tombstones.put(c.Ref(), until, gone, now)
		return nil
	})
	if err == nil && id != "" {
		s.alarms.Notify(id, gone) // without mu: a listener may call the Store
	}
	return err
}

// Detach starts the lease of t again. A claim in memory belongs to no process.
func (s *Store) Detach(ctx context.Context, t driver.Ticket) error {
	return s.Renew(ctx, []driver.Ticket{t})[0]
}

// Adopt gives the claim of t to by.
func (s *Store) Adopt(ctx context.Context, t driver.Ticket, by driver.Claim) (got driver.Ticket, err error) {
	err = s.step(ctx, t.Key, func(q *queue, now instant) error {
		c := q.findLive(by.ID) // by an earlier Adopt, whose answer was lost
		if c == nil {
			c = q.findLive(t.ID)
			if c == nil || !c.granted {
				return s.gone(t.Ref(), now)
			}
			s.tombstones.put(t.Ref(), now.mono+clampTTL(by.TTL), driver.Adopted, now)
			q.rename(c, &by)
		}
		q.renew(c, by.TTL, now)
		got = q.ticket(c, now)
		return nil
	})
	return got, err
}

// gone says why a claim is not in line, if the Store knows.
func (s *Store) gone(ref driver.ClaimRef, now instant) error {
	gone, _ := s.tombstones.find(ref, now)
	return gone
}
