package fencelock

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/fence"
)

const opRevoke = "revoke"

// revokePrefix begins the keys of requests to release. No caller can name such a key, and Lines
// leaves them out.
const revokePrefix = "fencelock/revoke/"

// revokeKey is the key that a request to release a claim is held under. first is the first token
// of the claim: Line shows it, and neither a hand-off nor Adopt changes it.
func revokeKey(key string, first fence.Token) string {
	sum := sha256.Sum256([]byte(key + "\x00" + first.String()))
	return revokePrefix + hex.EncodeToString(sum[:16])
}

// lookEvery returns the time between two looks of a holder for a request, and between two looks
// of Revoke at the holder.
func lookEvery(ttl time.Duration) time.Duration { return min(time.Second, ttl/3) }

// Revoke asks the holder of the grant of key that has the token to release it. If the holder has
// not done so when patience is over, Revoke breaks the grant, as Break does. Revoke returns
// once the claim has left the line. broken says whether the claim was ended by force. A claim
// that waits is broken at once. Any token of a claim's span will do.
//
// A holder that has called Lease.Revoked learns of the request within a second, or a third
// of its TTL. Its claim is then not handed on inside its process. A holder that has not
// called Lease.Revoked does not learn of it, and its grant is broken when patience is over.
// The request is a lease of this Client, with its own events, the reason as its note, and a
// key that Lines does not show. Revoke releases it on return, and it ends with its TTL if
// this process dies. Several calls for one claim share one request, and each has its own
// patience.
//
// The first look, the request and its end cost one round trip each. So does each further look:
// one a second, or one each third of Options.TTL if that is shorter. The delay is that of Break.
//
// Errors: ErrNoClaim if no claim has the token. When ctx ends, the error is that of ctx and
// its cause; nothing was broken, and a holder that was asked may still release.
// ErrUnavailable if the store does not respond to the request, or to the Break at the end.
// Between the two, Revoke waits out an outage.
func (c *Client) Revoke(
	ctx context.Context, key string, token fence.Token, reason string, patience, delay time.Duration,
) (broken bool, err error) {
	r := &revocation{c: c, key: key, token: token, reason: reason, patience: patience, delay: delay}
	if err := r.check(); err != nil {
		return false, wrap(opRevoke, key, err)
	}
	s, err := r.look(ctx)
	switch {
	case err != nil:
		return false, err
	case s == nil:
		return false, wrap(opRevoke, key, fmt.Errorf("%w %s; nothing was changed", ErrNoClaim, token))
	case s.Lingering:
		return false, nil // its holder has released it
	case !s.Granted:
		return r.breakNow(ctx)
	}
	r.at = revokeKey(key, s.Token)
	if err := r.ask(ctx); err != nil {
		return false, wrap(opRevoke, key, fmt.Errorf("nothing was broken: %w", err))
	}
	defer r.takeBack(ctx)
	return r.await(ctx)
}

// revocation is one call of Revoke.
type revocation struct {
	c        *Client
	key      string
	token    fence.Token
	reason   string
	patience time.Duration
	delay    time.Duration // of Break
	at       string        // the key of the request
	request  *Lease        // nil while another call asks
}

// check refuses what Revoke cannot do.
func (r *revocation) check() error {
	if err := r.c.ready(r.key); err != nil {
		return err
	}
	if err := checkBreak(r.token, r.reason); err != nil {
		return err
	}
	if r.patience <= 0 {
		return invalid("the patience is %v; it must be positive, or use Break", r.patience)
	}
	if err := Note(r.reason).asOption().set(&callOptions{}); err != nil {
		return err
	}
	_, err := r.c.info.breakDelay(r.delay)
	return err
}

// look returns the claim that has the token, or nil.
func (r *revocation) look(ctx context.Context) (*Standing, error) {
	line, err := r.c.Line(ctx, r.key)
	if err != nil {
		return nil, err
	}
	for _, s := range line.Claims {
		if s.HasToken(r.token) {
			return &s, nil
		}
	}
	return nil, nil
}

// ask takes the request, unless this call has it, or another one.
func (r *revocation) ask(ctx context.Context) error {
	if r.request != nil && r.request.Err() == nil {
		return nil
	}
	a := newAcquisition(ctx, r.c, request{op: opRevoke, key: r.at, capacity: driver.RW, weight: driver.RW, try: true})
	defer a.free()
	l, err := a.run([]Option{Note(r.reason)})
	if errors.Is(err, ErrNotAcquired) {
		return nil
	}
	r.request = l
	return err
}

func (r *revocation) takeBack(ctx context.Context) {
	if r.request != nil {
		_ = r.request.Release(ctx) // what the store does not confirm is repeated in the background
	}
}

// await waits until the claim has left the line, and breaks it when patience is over.
func (r *revocation) await(ctx context.Context) (broken bool, err error) {
	c := r.c
	until := c.clock.Now() + int64(min(r.patience, longestTTL))
	for {
		c.life.pause(ctx, min(lookEvery(c.options.TTL), time.Duration(until-c.clock.Now())))
		switch {
		case !c.life.open():
			return false, wrap(opRevoke, r.key, ErrClosed)
		case ctx.Err() != nil:
			return false, wrap(opRevoke, r.key,
				fmt.Errorf("%w: the holder was asked, and nothing was broken", errContext(ctx)))
		}
		s, err := r.look(ctx)
		switch {
		case err == nil && (s == nil || s.Lingering):
			return false, nil
		case c.clock.Now() >= until:
			return r.breakNow(ctx)
		}
		_ = r.ask(ctx) // the request may have ended in an outage, and so may that of another call
	}
}

// breakNow ends the claim by force, unless it has left the line.
func (r *revocation) breakNow(ctx context.Context) (broken bool, err error) {
	err = r.c.Break(ctx, r.key, r.token, r.reason, r.delay)
	if errors.Is(err, ErrNoClaim) {
		return false, nil
	}
	return err == nil, err
}

// revokeWatch looks for a request to release a grant. The mutex of the claim guards by.
type revokeWatch struct {
	lease *Lease             // has the grant
	stop  context.CancelFunc // called when the grant is over
	asked chan struct{}
	by    *Standing // the request; set before asked is closed
}

// run looks at the line of key until there is a request, or the grant is over.
func (w *revokeWatch) run(ctx context.Context, key string, ttl time.Duration) {
	c := w.lease.claim.c
	defer c.life.endWork()
	defer w.stop()
	tick := time.NewTicker(lookEvery(ttl))
	defer tick.Stop()
	for {
		call := c.life.renewing.Call(ctx, c.clock.Now(), ttl/3)
		found, err := c.backend.Line(call, key)
		call.End()
		if err == nil && len(found.Claims) > 0 {
			line := lineOf(&found)
			w.found(&line.Claims[0])
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
