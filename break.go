package fencelock

import (
	"context"
	"fmt"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/fence"
)

// Break ends the grant of key that has the token, or the waiting claim that would have got
// it, also if it belongs to another process. Any token of a claim's span will do. The
// reason reaches the holder as the cause of its context: at once if it is held through this
// Client or if the backend pushes, with its next renewal otherwise. It costs one round
// trip. After ErrUnavailable, and
// after ErrClosed from a Client that was closed meanwhile, the outcome is unknown, and
// Break may be called again.
//
// The holder may still be working when the next claim is granted. Fencing tokens protect
// the resource in that case. With a delay above zero the key stays closed for that long
// after the break, and Line shows the claim as lingering. A delay that is longer than a third
// of the holder's TTL, one renewal and its longest write lets the last write of the holder
// land before another holder begins. A delay of 0 is the LockDelay of the lease, if it has one. A
// delay below 0 opens the key at once. A waiting claim ends at once. A delay below the
// backend's shortest lease lasts as long as the shortest lease. A delay above the longest
// lease, or on ZooKeeper or a quorum, is ErrInvalid.
//
// Break may be repeated. For a claim that lingers already, because it was broken or because
// of MinHold, Break with a delay of 0 changes nothing and returns nil. With a delay above 0
// the key stays closed for that long from now on, and never for less long than was promised
// before. A delay below 0 ends the lingering.
//
// If no claim has the token, nothing is changed and the error is ErrNoClaim.
func (c *Client) Break(
	ctx context.Context, key string, token fence.Token, reason string, delay time.Duration,
) (err error) {
	const op = "break"
	if err := c.ready(key); err != nil {
		return wrap(op, key, err)
	}
	if err := checkBreak(token, reason); err != nil {
		return wrap(op, key, err)
	}
	if delay, err = c.info.breakDelay(delay); err != nil {
		return wrap(op, key, err)
	}
	call := c.life.acquiring.Call(ctx, c.clock.Now(), c.options.TTL/3)
	defer call.End()
	if err := c.backend.Break(call, key, int64(token), driver.Break{Reason: reason, Delay: delay}); err != nil {
		if driver.Gone(err) {
			return wrap(op, key, fmt.Errorf("%w %s; nothing was changed: %w", ErrNoClaim, token, err))
		}
		return wrap(op, key, c.storeError(ctx, err))
	}
	c.events.send(EventBroke, Event{Context: ctx, Key: key, Standing: Standing{Token: token}, Reason: reason})
	for _, cl := range c.schedule.Find(func(cl *claim) bool { return cl.key == key }) {
		cl.breakToken(token, reason)
	}
	return nil
}

// checkBreak refuses a token or a reason that cannot be.
func checkBreak(token fence.Token, reason string) error {
	switch {
	case token <= 0:
		return invalid("token %d; want the token of the grant to end, as Line shows it", token)
	case !isText(reason):
		return invalid("the reason is not text: it must be UTF-8 without zero bytes")
	case len(reason) > driver.MaxNote:
		return invalid("the reason has %d bytes; at most %d", len(reason), driver.MaxNote)
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

// ready says why every call on key fails, or nil.
func (c *Client) ready(key string) error {
	if err := checkKey(key); err != nil {
		return err
	}
	if !c.life.open() {
		return ErrClosed
	}
	return nil
}
