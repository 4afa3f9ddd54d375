package redislock

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/redislock/internal/transport"
)

const (
	leaving  = "leaving the line of"
	breaking = "breaking a claim on"
)

// Leave takes the claim of t out of its line, in one request. It works when the
// server is out of memory.
func (b *Backend) Leave(ctx context.Context, t driver.Ticket, e driver.Exit) error {
	if err := b.ready(ctx); err != nil {
		return err
	}
	if len(e.Mark) > driver.MaxMark {
		return driver.Permanent(fmt.Errorf("redis: %s %q: a mark has at most %d bytes, not %d",
			leaving, t.Key, driver.MaxMark, len(e.Mark)))

	}
	argv := []any{prefixed(t.ID), b.callName()}
	// An Enter whose outcome is unknown may arrive later: a tombstone keeps it out.
	_, retried := b.retried.Load(t.ID)
	unknown := e.Tombstone || retried
	if e != (driver.Exit{}) || unknown {
		tombstone := "0"
		if unknown {
			tombstone = micros(clampTTL(t.TTL))
		}
		argv = append(argv, string(e.Mark), exitArg(&e), tombstone)
	}
	cmd := b.command(leaveScript, t.Key, argv...)
	cmd.Durable = e.Mark != ""
	got := b.transport.Do(ctx, cmd)
	if got.Answer != "h" {
		b.forget(t.ID)
	}
	if got.Retried && e == (driver.Exit{}) && (got.Answer == "x" || unknown && got.Answer == "xl") {
		// The first copy did it, so long ago that the line has forgotten the call, or the
		// lease is over.
		return nil
	}
	return b.done(ctx, leaving, t.Key, got)
}

// forget drops what the Backend keeps for a claim that has left, or is about to: a message for the
// claim is of no use to any caller.
func (b *Backend) forget(id string) {
	b.waiters.forget(id)
	b.subscriber.alarms.left(id)
}

// Break ends the claim whose span holds token, in one request.
func (b *Backend) Break(ctx context.Context, key string, token int64, reason string, linger time.Duration) error {
	if err := b.ready(ctx); err != nil {
		return err
	}
	if token < 0 || len(reason) > driver.MaxNote {
		return driver.Permanent(fmt.Errorf(
			"redis: %s %q: a token is not negative, and a reason has at most %d bytes", breaking, key, driver.MaxNote))

	}
	arg := lingerArg(linger)
	if linger < 0 {
		arg = "-1" // ends a claim that lingers
	}
	cmd := b.command(breakScript, key, fmt.Sprintf("%019d", token), reason, b.callName(), arg)
	return b.done(ctx, breaking, key, b.transport.Do(ctx, cmd))
}

// exitArg is how a claim leaves, as leave.lua reads it: lingerArg, or -1 if only while it waits.
func exitArg(e *driver.Exit) string {
	if e.IfWaiting {
		return "-1"
	}
	return lingerArg(e.Linger)
}

// lingerArg is d as scripts read it: in µs, 0 for none.
func lingerArg(d time.Duration) string {
	if d <= 0 {
		return "0"
	}
	return micros(clampTTL(d))
}

// done reads '+', or why the claim did not leave. What only the master is known to have done is
// not done.
func (b *Backend) done(ctx context.Context, doing, key string, got transport.Result) error {
	s, _ := got.Answer.(string)
	switch {
	case strings.HasPrefix(s, "x"):
		return parseGone(s)
	case got.Err != nil:
		return b.answered(ctx, doing, key, got)
	case s == "+":
		return nil
	case s == "h":
		return driver.ErrGranted
	}
	return badAnswer(doing, key, got.Answer)
}
