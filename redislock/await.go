package redislock

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/fencelock/fencelock/driver"
)

const (
	// fallback is about how long Await waits for a message before it reads the line:
	// messages may be lost.
	fallback = time.Second
	// margin is how much later than the end of a lease the line is read: the server
	// counts in µs, the network adds something.
	margin = time.Millisecond
)

const awaiting = "waiting in the line of"

// Await waits for the message that says that the claim of t is granted. If it comes, no
// request is needed. Without one Await reads the line, in one request: after about a
// second, when a lease in line may have ended, and once after the subscription was made
// or was interrupted.
func (b *Backend) Await(ctx context.Context, t driver.Ticket) (driver.Ticket, error) {
	if err := b.ready(ctx); err != nil {
		return driver.Ticket{}, err
	}
	// Waiters that came together do not read together.
	limit := time.Now().Add(b.fallback - b.fallback/8 + rand.N(b.fallback/4))
	for first := true; ; first = false {
		w := b.waiters.get(t.ID)
		epoch := b.subscriber.epoch.Load() // a later change wakes w
		switch {
		case w.gone != nil:
			b.waiters.forget(t.ID)
			return driver.Ticket{}, *w.gone
		case w.granted && !first:
			b.waiters.forget(t.ID)
			return pushed(t, w), nil
		case w.granted:
			// That was before this call: much may have happened since.
			return b.read(ctx, t)
		case w.stale || epoch != 0 && w.epoch != epoch:
			return b.read(ctx, t)
		}
		readAt := w.due.Add(margin)
		if readAt.After(limit) {
			readAt = limit
		}
		timer := time.NewTimer(time.Until(readAt))
		select {
		case <-w.changed:
		case <-timer.C:
			return b.read(ctx, t)
		case <-ctx.Done():
			return driver.Ticket{}, ctx.Err()
		case <-b.subscriber.ctx.Done():
			return driver.Ticket{}, driver.ErrClosed
		}
	}
}

// pushed is the ticket of a claim that a message granted.
func pushed(t driver.Ticket, w waiter) driver.Ticket {
	t.Granted, t.Mark = true, w.mark
	t.Ahead, t.Head = 0, nil
	t.Left = max(time.Until(w.ends), margin)
	return t
}

// read reads where the claim of t is in its line.
func (b *Backend) read(ctx context.Context, t driver.Ticket) (driver.Ticket, error) {
	epoch := b.subscriber.epoch.Load()
	sent := time.Now()
	r := b.request(awaitScript, t.Key, t.ID)
	// Not do: this goroutine goes on waiting, and would keep the 16 KB of stack that go-redis needs.
	b.transport.start(ctx, r)
	got := b.transport.wait(ctx, r)
	if got.err != nil {
		return driver.Ticket{}, b.answered(ctx, awaiting, t.Key, got)
	}
	if s, ok := got.answer.(string); ok && s != "" && s[0] == 'x' {
		b.waiters.forget(t.ID)
		return driver.Ticket{}, parseGone(s)
	}
	now, soonest, ok := parseTicket(t.Claim, got.answer)
	if !ok {
		return driver.Ticket{}, badAnswer(awaiting, t.Key, got.answer)
	}
	if now.Granted {
		b.waiters.forget(t.ID)
		return now, nil
	}
	b.waiters.setStanding(t.ID, epoch, &now, sent, time.Now().Add(soonest))
	b.subscriber.open()
	return now, nil
}
