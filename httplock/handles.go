package httplock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/httplock/internal/watch"
	"github.com/fencelock/fencelock/internal/note"
	"github.com/fencelock/fencelock/internal/slot"
)

// handleRequest is the body of /v1/renew, /v1/release and /v1/check.
type handleRequest struct {
	Handle string    `json:"handle"`
	TTL    *duration `json:"ttl"`  // of renew
	Done   string    `json:"done"` // of release: the slot
}

// lease is the lease of a handle that a request is about.
type lease struct {
	handle fencelock.Handle
	kept   *holding // or nil: the store keeps it
	key    string
	token  fence.Token // 0 until the store, or this Server, has said that the handle has it
}

// lease reads the handle of a request, and finds out whether the caller may use it. What the handle
// says is not known to be true: anybody can write one.
func (c *call) lease(handle string) (*lease, error) {
	l := &lease{handle: fencelock.Handle(handle)}
	instance := ""
	l.key = l.handle.Key()
	if isKept(handle) {
		instance, l.key, _ = readKept(handle)
	}
	const maxHandle = 1024 // bytes; the library writes at most 512
	if l.key == "" || len(handle) > maxHandle {
		return nil, &problem{slug: slugInvalidHandle, detail: "This is no handle; acquire and once answer them."}
	}
	if err := c.who.may(verbAcquire, l.key); err != nil {
		return nil, err
	}
	if !isKept(handle) {
		if ttl := l.handle.TTL(); ttl < time.Millisecond || ttl > maxTTL {
			return nil, &problem{slug: slugInvalidHandle, key: l.key,
				detail: fmt.Sprintf("The handle is of a ttl of %v; want at least 1ms and at most %v.", ttl, maxTTL)}
		}
		return l, nil
	}
	var err error
	if l.kept, err = c.s.kept.find(handle, instance, l.key); err != nil {
		return nil, err
	}
	l.token = l.kept.lease.Token()
	return l, nil
}

// vouch finds out whether there is a lease as the handle of l says. A handle that this Server has
// granted to the caller is known; for another one it asks the store.
func (s *Server) vouch(ctx context.Context, c *call, l *lease) error {
	if l.kept == nil && !s.held.has(c.who.name, string(l.handle)) {
		if _, err := s.locks.Detached(l.handle).Check(ctx); err != nil {
			return err
		}
	}
	l.confirm()
	return nil
}

// confirm takes the token of the handle for true.
func (l *lease) confirm() {
	if l.kept == nil {
		l.token = l.handle.Token()
	}
}

// problem is err, the answer to a request for the lease, as the client gets it.
func (l *lease) problem(err error) error {
	if err == nil {
		return nil
	}
	p := problemOf(err)
	if errors.Is(err, fencelock.ErrInvalid) && l.kept == nil {
		p.slug = slugInvalidHandle
	}
	p.key = l.key
	return p
}

// left is the time until deadline in an answer.
func left(deadline time.Time) int64 { return max(time.Until(deadline), 0).Milliseconds() }

func (s *Server) renew(c *call) (any, error) {
	var q handleRequest
	if err := c.read(&q); err != nil {
		return nil, err
	}
	if q.Done != "" {
		return nil, invalid("Only release has the member done.")
	}
	ttl := time.Duration(0)
	if q.TTL != nil {
		if ttl = time.Duration(*q.TTL); ttl < time.Millisecond || ttl > maxTTL {
			return nil, invalid("The ttl is %v; want at least 1ms and at most %v.", ttl, maxTTL)
		}
	}
	l, err := c.lease(q.Handle)
	if err != nil {
		return nil, err
	}
	var deadline time.Time
	var notice *fencelock.Break
	if err = s.vouch(c.Context(), c, l); err == nil {
		deadline, notice, err = s.renewLease(c.Context(), l, ttl)
	}
	c.audit(actRenew, l.key, l.token, err)
	if err != nil {
		return nil, l.problem(err)
	}
	s.held.renewed(c.who.name, q.Handle, deadline)
	answer := map[string]any{"key": l.key, "token": l.token, "left_ms": left(deadline)}
	if notice != nil {
		answer["revoked"], answer["reason"] = true, notice.Reason
	}
	return answer, nil
}

func (s *Server) renewLease(
	ctx context.Context, l *lease, ttl time.Duration,
) (deadline time.Time, notice *fencelock.Break, err error) {
	if l.kept != nil {
		return l.kept.renew(ctx)
	}
	d, notice, err := s.locks.Detached(l.handle).Renew(ctx, ttl)
	return time.Now().Add(d), notice, err
}

func (s *Server) release(c *call) (any, error) {
	var q handleRequest
	if err := c.read(&q); err != nil {
		return nil, err
	}
	if q.TTL != nil {
		return nil, invalid("Only renew has a ttl.")
	}
	slot, err := readSlot(q.Done, time.Time{})
	if q.Done != "" && err != nil {
		return nil, err
	}
	l, err := c.lease(q.Handle)
	if err != nil {
		return nil, err
	}
	// A client that goes away after this request wants its lock released all the same.
	ctx := context.WithoutCancel(c.Context())
	what := actRelease
	switch {
	case l.kept != nil:
		err = l.kept.release(ctx, q.Done != "")
	case q.Done != "":
		what, err = actDone, s.finish(ctx, l, slot)
	default:
		if err = s.vouch(ctx, c, l); err == nil {
			err = s.locks.Detached(l.handle).Release(ctx)
		}
	}
	c.audit(what, l.key, l.token, err)
	if err == nil || errors.Is(err, fencelock.ErrLost) {
		s.held.remove(c.who.name, q.Handle)
	}
	if err != nil {
		return nil, l.problem(err)
	}
	s.watch.Ended(l.key, l.token, watch.Released, "")
	// A repeated release of a slot is known by the ID of its claim alone.
	token := cmp.Or(l.token, l.handle.Token())
	return map[string]any{"key": l.key, "token": token, "released": true}, nil
}

// finish releases the lease of a slot, and notes the slot as done by the owner of the lease. A
// repeated request, whose lease has ended with that note, succeeds again: the line keeps which
// claim wrote the note.
func (s *Server) finish(ctx context.Context, l *lease, slot time.Time) error {
	standing, err := s.locks.Detached(l.handle).Check(ctx)
	if err == nil {
		l.confirm()
	}
	switch of := note.Parse(standing.Note).Slot; {
	case errors.Is(err, fencelock.ErrLost):
		line, lineErr := s.locks.Line(ctx, l.key)
		if lineErr != nil {
			return lineErr
		}
		if line.Done.IsZero() || !line.Slot.Equal(slot) {
			return err // no claim has noted the slot
		}
	case err != nil:
		return err
	case of != nil && !of.Equal(slot):
		return invalid("The lease is for the slot %s.", note.Slot(*of))
	case standing.Kind != "exclusive":
		return &problem{slug: slugInvalidHandle, detail: "Only the holder of an exclusive lease can finish a slot."}
	}
	return s.locks.Detached(l.handle).Finish(ctx, slot, standing.Owner)
}

func (s *Server) check(c *call) (any, error) {
	var q handleRequest
	if err := c.read(&q); err != nil {
		return nil, err
	}
	if q.TTL != nil || q.Done != "" {
		return nil, invalid("The body of check has a handle, and nothing else.")
	}
	l, err := c.lease(q.Handle)
	if err != nil {
		return nil, err
	}
	deadline, err := s.checkLease(c.Context(), l)
	if err != nil {
		return nil, l.problem(err)
	}
	l.confirm()
	return map[string]any{"key": l.key, "token": l.token, "left_ms": left(deadline), "held": true}, nil
}

func (s *Server) checkLease(ctx context.Context, l *lease) (time.Time, error) {
	if l.kept != nil {
		return l.kept.check()
	}
	sent := time.Now()
	standing, err := s.locks.Detached(l.handle).Check(ctx)
	// The margin is the library's, for clocks of different rates.
	return sent.Add(standing.Left - standing.Left/100 - 2*time.Millisecond), err
}

// readSlot reads the slot of a request: "ever", a time, or the length of slots, of which that
// with now in it is meant. The zero now stands for no length.
func readSlot(text string, now time.Time) (time.Time, error) {
	const day = 24 * time.Hour
	if t, ok := note.ReadSlot(text); ok {
		return t, nil
	}
	d, err := time.ParseDuration(text)
	switch {
	case now.IsZero():
		return time.Time{}, invalid("The slot %q cannot be read; want the one that once has answered.", text)
	case err != nil || d < time.Second || day%d != 0:
		return time.Time{}, invalid("The slot %q cannot be read; want a part of a day such as 5m, 1h or 24h, "+
			"a time such as 2026-11-25T13:00:00Z, or ever.", text)
	}
	return slot.Start(now.UTC(), d), nil
}
