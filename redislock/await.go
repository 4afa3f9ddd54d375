package redislock

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/fencelock/fencelock/driver"
)

const (
	// fallback is about how long Await waits for a push before it reads the line:
	// messages may be lost.
	fallback = time.Second
	// grain is how much later than the end of a lease the line is read: the server
	// counts in µs, the network adds something.
	grain = time.Millisecond
)

const awaiting = "waiting in the line of"

// Await waits for the push that says that the claim of t is granted; if it comes
// meanwhile, no request is needed. Without one it reads the line, in one request: after about a
// second, when a lease in line may have ended, and once after the subscription
// was made or was interrupted.
func (b *Backend) Await(ctx context.Context, t driver.Ticket) (driver.Ticket, error) {
	if err := b.ready(ctx); err != nil {
		return driver.Ticket{}, err
	}
	// Waiters that came together do not read together.
	limit := time.Now().Add(fallback - fallback/8 + rand.N(fallback/4))
	timer := time.NewTimer(fallback)
	defer timer.Stop()
	for first := true; ; first = false {
		epoch, changed := b.ear.state()
		w := b.waits.look(t.ID)
		switch {
		case w.gone != nil:
			b.waits.forget(t.ID)
			return driver.Ticket{}, *w.gone
		case w.granted && !first:
			b.waits.forget(t.ID)
			return pushed(t, w), nil
		case w.granted:
			// That was before this call: much may have happened since.
			return b.look(ctx, t)
		case w.stale || epoch != 0 && w.epoch != epoch:
			return b.look(ctx, t)
		}
		// Those far behind need not know at once that a lease has ended: those in
		// front do, and their reading wakes everybody it concerns.
		due := w.due.Add(grain)
		if soon := time.Now().Add(w.far); due.Before(soon) {
			due = soon
		}
		if due.After(limit) {
			due = limit
		}
		timer.Reset(time.Until(due))
		select {
		case <-w.bell:
		case <-changed:
		case <-timer.C:
			return b.look(ctx, t)
		case <-ctx.Done():
			return driver.Ticket{}, ctx.Err()
		case <-b.ear.done:
			return driver.Ticket{}, driver.ErrClosed
		}
	}
}

// pushed is the ticket of a claim that a message granted.
func pushed(t driver.Ticket, w wait) driver.Ticket {
	t.Granted, t.Mark, t.Mixed = true, w.mark, w.mixed
	t.Ahead, t.Head = 0, nil
	t.Left = max(time.Until(w.ends), grain)
	return t
}

// look reads where the claim of t stands.
func (b *Backend) look(ctx context.Context, t driver.Ticket) (driver.Ticket, error) {
	epoch := b.ear.epoch.Load()
	sent := time.Now()
	answer, err := b.sender.run(ctx, b.step(lookScript, t.Key, tag(t.ID)))
	if err != nil {
		return driver.Ticket{}, failed(ctx, awaiting, t.Key, err)
	}
	if s, ok := answer.(string); ok && s != "" && s[0] == 'x' {
		b.waits.forget(t.ID)
		return driver.Ticket{}, goneFor(s)
	}
	now, soonest, ok := ticket(t.Claim, answer)
	if !ok {
		return driver.Ticket{}, unknown(awaiting, t.Key, answer)
	}
	if now.Granted {
		b.waits.forget(t.ID)
		return now, nil
	}
	b.waits.note(t.ID, epoch, &now, sent, time.Now().Add(soonest))
	b.ear.open()
	return now, nil
}
