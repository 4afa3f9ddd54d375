package memlock

import (
	"context"
	"fmt"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/driverutil"
	"github.com/fencelock/fencelock/internal/limit"
	"github.com/fencelock/fencelock/internal/line"
)

// step runs f on the line of key as one atomic step, unless ctx has ended.
func (s *Store) step(ctx context.Context, key string, f func(l *line.Line, at *line.Step) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.now() // with mu held, so that steps and their times have the same order
	l, known := s.lines[key]
	if !known {
		l = &line.Line{}
	}
	l.Purge(at)
	err := f(l, at)
	if !known && !l.Blank() {
		s.keep(key, l, at)
	}
	s.wake(at.News)
	return err
}

// Enter joins the line of c.Key. If the claim with c.ID is in line already, Enter
// starts its lease again.
func (s *Store) Enter(ctx context.Context, c driver.Claim) (t driver.Ticket, err error) {
	if err := c.Validate(s.Info()); err != nil {
		return t, err
	}
	err = s.step(ctx, c.Key, func(l *line.Line, at *line.Step) error {
		own, err := l.Enter(at, c)
		if err == nil {
			t = l.Ticket(at, own)
		}
		return err
	})
	return t, err
}

// maxAwait is the longest that Await waits before it looks again.
const maxAwait = time.Second

// Await returns when the claim of t is granted or gone, when a claim of its line
// may have expired, or after a second.
func (s *Store) Await(ctx context.Context, t driver.Ticket) (got driver.Ticket, err error) {
	var wake <-chan struct{} // nil unless the claim waits
	var soonest time.Duration
	look := func(l *line.Line, at *line.Step) error {
		c := l.Find(t.ID)
		if c == nil {
			return l.Gone(at, t.ID)
		}
		got = l.Ticket(at, c)
		if !c.Granted {
			wake, soonest = s.waiter(c), min(maxAwait, l.NextExpiry()-at.Mono)
		}
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
		errs[i] = s.step(ctx, t.Key, func(l *line.Line, at *line.Step) error { return l.Renew(at, t) })
	}
	return errs
}

// Leave takes the claim of t out of its line and wakes everyone that this makes
// granted.
func (s *Store) Leave(ctx context.Context, t driver.Ticket, e driver.Exit) error {
	return s.step(ctx, t.Key, func(l *line.Line, at *line.Step) error { return l.Leave(at, &t, e) })
}

// Reserve lengthens the span of t if that claim is alone in line and no token was drawn
// since.
func (s *Store) Reserve(ctx context.Context, t driver.Ticket, span int64) (done bool, err error) {
	if span < 1 || span > limit.Span {
		return false, driver.Permanent(fmt.Errorf(
			"memory: a claim on %q reserves 1 to %d tokens, not %d", t.Key, limit.Span, span))

	}
	err = s.step(ctx, t.Key, func(l *line.Line, _ *line.Step) error {
		done = l.Reserve(&t, span)
		return nil
	})
	return done, err
}

// Break ends the claim of key whose span holds token, at once or after a delay, and wakes
// everyone that this makes granted. It notifies the alarms.
func (s *Store) Break(ctx context.Context, key string, token int64, how driver.Break) error {
	var id string
	gone := driver.GoneError{Reason: how.Reason, Broken: true}
	err := s.step(ctx, key, func(l *line.Line, at *line.Step) error {
		c, err := l.Break(at, token, how)
		if c != nil {
			if id = c.ID; c.Noticed {
				gone.Left = c.Expires - at.Mono
			}
		}
		return err
	})
	if id != "" {
		s.alarms.Notify(id, gone) // without mu: a listener may call the Store
	}
	return err
}

// Detach starts the lease of t again. A claim in memory belongs to no process.
func (s *Store) Detach(ctx context.Context, t driver.Ticket) error {
	return driverutil.InLine(s.Renew(ctx, []driver.Ticket{t})[0])
}

// Adopt gives the claim of t to by.
func (s *Store) Adopt(ctx context.Context, t driver.Ticket, by driver.Claim) (got driver.Ticket, err error) {
	err = s.step(ctx, t.Key, func(l *line.Line, at *line.Step) error {
		c, err := l.Adopt(at, &t, &by)
		if err == nil {
			got = l.Ticket(at, c)
		}
		return err
	})
	return got, err
}
