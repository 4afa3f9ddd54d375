package memlock

import (
	"context"
	"fmt"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// errLeft is the answer to a claim that has left.
var errLeft = driver.ErrGone{Reason: "it has left"}

// Enter joins the line of c.Key. If the claim with c.ID is in line already, Enter
// starts its lease again.
func (s *Store) Enter(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
	return s.enter(ctx, c, false)
}

func (s *Store) enter(ctx context.Context, c driver.Claim, reenter bool) (driver.Ticket, error) {
	if err := ctx.Err(); err != nil {
		return driver.Ticket{}, err
	}
	if err := c.Validate(s.Info()); err != nil {
		return driver.Ticket{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	q := s.line(c.Key, now)
	if own := q.findLive(c.ID); own != nil {
		q.renew(own, c.TTL, now)
		return q.ticket(own, now), nil
	}
	if err := s.refusal(q, &c, reenter, now); err != nil {
		return driver.Ticket{}, err
	}
	s.keep(c.Key, q, now)
	return q.ticket(q.join(c, now), now), nil
}

// refusal says why c may not join q, or returns nil.
func (s *Store) refusal(q *queue, c *driver.Claim, reenter bool, now instant) error {
	if gone, ok := s.tombstones.find(c.Ref(), now); ok {
		return gone
	}
	if q.find(c.ID) != nil {
		return errLeft // it lingers: a late repeat of its Enter must not bring it back
	}
	if len(q.claims) > 0 {
		if (q.claims[0].Capacity == driver.RW) != (c.Capacity == driver.RW) {
			return driver.ErrKind
		}
		if c.NoWait && q.total+c.Weight > c.Capacity {
			return q.busy(len(q.claims), now)
		}
	}
	if c.Ballot != 0 {
		return s.member.judge(q, c, reenter, now)
	}
	return nil
}

// maxAwait is the longest that Await waits before it looks again.
const maxAwait = time.Second

// Await returns when the claim of t is granted or gone, when a claim of its line
// may have expired, or after a second.
func (s *Store) Await(ctx context.Context, t driver.Ticket) (driver.Ticket, error) {
	now, wake, d, err := s.position(ctx, t)
	if wake == nil {
		return now, err
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-wake:
	case <-timer.C:
	case <-ctx.Done():
		return driver.Ticket{}, ctx.Err()
	}
	now, _, _, err = s.position(ctx, t)
	return now, err
}

// position looks where the claim of t stands. While the claim waits, wake is
// closed once it is granted or gone, and within d somebody in line may expire.
func (s *Store) position(ctx context.Context, t driver.Ticket) (
	_ driver.Ticket, wake <-chan struct{}, d time.Duration, _ error,
) {
	if err := ctx.Err(); err != nil {
		return driver.Ticket{}, nil, 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	q := s.line(t.Key, now)
	c := q.findLive(t.ID)
	if c == nil {
		return driver.Ticket{}, nil, 0, s.gone(t.Ref(), now)
	}
	t = q.ticket(c, now)
	if c.granted {
		return t, nil, 0, nil
	}
	if c.wake == nil {
		c.wake = make(chan struct{})
	}
	return t, c.wake, min(maxAwait, q.nextExpiry-now.mono), nil
}

// Renew starts the leases of ts again, in one step for all of them.
func (s *Store) Renew(ctx context.Context, ts []driver.Ticket) []error {
	errs := make([]error, len(ts))
	if err := ctx.Err(); err != nil {
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	for i := range ts {
		t := &ts[i]
		q := s.line(t.Key, now)
		c := q.findLive(t.ID)
		if c == nil {
			errs[i] = s.gone(t.Ref(), now)
			continue
		}
		q.renew(c, t.TTL, now)
	}
	return errs
}

// Leave takes the claim of t out of its line and wakes everyone that this makes
// granted.
func (s *Store) Leave(ctx context.Context, t driver.Ticket, e driver.Exit) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	q := s.line(t.Key, now)
	c := q.findLive(t.ID)
	var err error
	if c == nil && q.markedBy != t.ID {
		err = s.gone(t.Ref(), now)
	}
	if t.Token == 0 {
		s.tombstones.put(t.Ref(), now.mono+clampTTL(t.TTL), errLeft, now)
	}
	if c == nil {
		return err
	}
	if e.Mark != "" && c.granted {
		q.mark, q.markedBy = e.Mark, c.ID
	}
	if e.Linger > 0 {
		q.linger(c, now.mono+clampTTL(e.Linger))
		return nil
	}
	q.remove(c)
	q.grant(now)
	return nil
}

// Reserve lengthens the span of t if that claim is alone in line and nobody has
// drawn a token since.
func (s *Store) Reserve(ctx context.Context, t driver.Ticket, span int64) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	if span < 1 || span > driver.MaxSpan {
		return false, &driver.PermanentError{Err: fmt.Errorf(
			"memory: a claim on %q reserves 1 to %d tokens, not %d", t.Key, driver.MaxSpan, span)}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.line(t.Key, s.now())
	c := q.findLive(t.ID)
	if c == nil || len(q.claims) > 1 || q.lastToken != c.token+c.Span-1 || c.Ballot != 0 {
		return false, nil
	}
	c.Span = max(c.Span, span)
	q.lastToken = c.token + c.Span - 1
	return true, nil
}

// Break ends the claim of key whose span holds token and wakes everyone that this
// makes granted. It notifies the alarms.
func (s *Store) Break(ctx context.Context, key string, token int64, reason string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	gone := driver.ErrGone{Reason: reason, Broken: true}
	id, ok := s.evict(key, token, gone)
	if !ok {
		return driver.ErrGone{}
	}
	s.alarms.Notify(id, gone) // without mu: a listener may call the Store
	return nil
}

// evict takes the claim of key whose span holds token out of its line.
func (s *Store) evict(key string, token int64, gone driver.ErrGone) (id string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	q := s.line(key, now)
	for _, c := range q.claims {
		if token < c.token || token-c.token >= c.Span {
			continue
		}
		s.tombstones.put(c.Ref(), c.expires, gone, now)
		q.remove(c)
		q.grant(now)
		return c.ID, true
	}
	return "", false
}

// gone says why a claim is not in line, if the Store knows.
func (s *Store) gone(ref driver.ClaimRef, now instant) error {
	gone, _ := s.tombstones.find(ref, now)
	return gone
}
