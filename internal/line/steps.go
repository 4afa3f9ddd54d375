package line

import (
	"cmp"
	"slices"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/driverutil"
)

// errLeft is the answer to a claim that has left.
var errLeft = driver.GoneError{Reason: "it has left"}

// Enter puts c into the line. If the claim with c.ID is there already, Enter starts its lease
// again.
func (l *Line) Enter(s *Step, c driver.Claim) (*Claim, error) {
	if own := l.Find(c.ID); own != nil {
		if err := driverutil.CheckFound(c.Capacity, c.Weight, own.Capacity, own.Weight); err != nil {
			return nil, err
		}
		own.renew(s, driverutil.Lease(&c, own.Granted))
		return own, nil
	}
	if err := l.refusal(s, &c); err != nil {
		return nil, err
	}
	return l.join(s, c), nil
}

// refusal says why c may not join, or returns nil.
func (l *Line) refusal(s *Step, c *driver.Claim) error {
	if gone, ok := l.barred(s, c.ID); ok {
		return gone
	}
	if l.find(c.ID) != nil {
		return errLeft // it lingers: a late repeat of its Enter must not bring it back
	}
	if len(l.Claims) > 0 {
		if err := driverutil.CheckKind(c.Capacity, l.Claims[0].Capacity); err != nil {
			return err
		}
		if c.NoWait && l.total+c.Weight > c.Capacity {
			return l.busy(s, len(l.Claims))
		}
	}
	return nil
}

// Renew starts the lease of the claim of t again.
func (l *Line) Renew(s *Step, t *driver.Ticket) error {
	c := l.Find(t.ID)
	if c == nil {
		return l.Gone(s, t.ID)
	}
	c.renew(s, t.TTL)
	return l.Notice(s, c)
}

// Notice returns the driver.GoneError with Left of a claim under notice, or nil.
func (l *Line) Notice(s *Step, c *Claim) error {
	if !c.Noticed {
		return nil
	}
	gone := l.Tombstones[c.ID].Gone
	gone.Left = c.Expires - s.Mono
	return gone
}

// Gone says why the claim with id is not in line, if anybody knows.
func (l *Line) Gone(s *Step, id string) error {
	gone, _ := l.barred(s, id)
	return gone
}

// Leave takes the claim of t out, or has it linger.
func (l *Line) Leave(s *Step, t *driver.Ticket, e driver.Exit) error {
	c := l.Find(t.ID)
	if e.IfWaiting && c != nil && c.Granted {
		return driver.ErrGranted
	}
	var err error
	if c == nil && l.MarkedBy != t.ID {
		err = l.Gone(s, t.ID)
	}
	if e.Tombstone {
		l.bar(s, t.ID, s.Mono+clampTTL(t.TTL), errLeft)
	}
	if c == nil {
		return err
	}
	if c.Noticed {
		gone := l.Tombstones[c.ID]
		gone.Left = true
		l.Tombstones[c.ID] = gone
	}
	if e.Mark != "" && c.Granted {
		l.Mark, l.MarkedBy = max(l.Mark, e.Mark), c.ID
	}
	if e.Linger > 0 {
		l.linger(s, c, s.Mono+clampTTL(e.Linger))
		return nil
	}
	l.remove(s, c)
	return nil
}

// Reserve lengthens the span of the claim of t, if that is alone in line and nobody has drawn
// a token since.
func (l *Line) Reserve(t *driver.Ticket, span int64) (done bool) {
	c := l.Find(t.ID)
	if c == nil || len(l.Claims) > 1 || l.Last != c.Token+c.Span-1 {
		return false
	}
	c.Span = max(c.Span, span)
	l.Last = c.Token + c.Span - 1
	return true
}

// Break ends the claim whose span holds token, now or after notice, and returns it.
// It returns nil if the claim lingers already and is left as it is.
func (l *Line) Break(s *Step, token int64, how driver.Break) (*Claim, error) {
	i := slices.IndexFunc(l.Claims, func(c *Claim) bool { return token >= c.Token && token-c.Token < c.Span })
	if i < 0 {
		return nil, driver.GoneError{}
	}
	c := l.Claims[i]
	if c.Lingering && how.Delay == 0 {
		return nil, nil
	}
	delay := cmp.Or(how.Delay, c.LockDelay)
	if c.Noticed && !c.Lingering && how.Delay > 0 {
		delay = max(delay, c.LockDelay) // which was promised
	}
	if how.Notice > 0 && c.Granted && !c.Lingering {
		l.giveNotice(s, c, clampTTL(how.Notice), max(delay, 0))
		l.bar(s, c.ID, c.Expires+c.LockDelay+c.TTL, driver.GoneError{Reason: how.Reason, Broken: true})
		return c, nil
	}
	c.Noticed = false
	until := c.Expires
	if delay > 0 && c.Granted {
		end := s.Mono + clampTTL(delay)
		if c.Lingering {
			end = max(end, c.Expires)
		}
		l.linger(s, c, end)
		until = max(until, c.Expires)
	} else {
		l.remove(s, c)
	}
	l.bar(s, c.ID, until, driver.GoneError{Reason: how.Reason, Broken: true})
	return c, nil
}

// giveNotice has c end after notice, and its place stay taken for delay then.
func (l *Line) giveNotice(s *Step, c *Claim, notice, delay time.Duration) {
	end := s.Mono + notice
	if c.Noticed {
		end, delay = max(end, c.Expires), max(delay, c.LockDelay)
	}
	c.Noticed, c.Expires, c.LockDelay = true, end, delay
	s.tell(c, false)
	l.endsSooner(s, c)
}

// Adopt gives the claim of t to by.
func (l *Line) Adopt(s *Step, t *driver.Ticket, by *driver.Claim) (*Claim, error) {
	c := l.Find(by.ID) // by an earlier Adopt, whose answer was lost
	if c == nil {
		c = l.Find(t.ID)
		if c == nil || !c.Granted {
			return nil, l.Gone(s, t.ID)
		}
		l.bar(s, t.ID, s.Mono+clampTTL(by.TTL), driverutil.Adopted)
		l.rename(c, by)
		if c.Noticed {
			old := l.Tombstones[t.ID]
			l.bar(s, by.ID, old.Until, old.Gone)
		}
	}
	c.renew(s, by.TTL)
	return c, nil
}
