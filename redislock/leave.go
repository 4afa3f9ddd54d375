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
		return &driver.PermanentError{Err: fmt.Errorf("redis: %s %q: a mark has at most %d bytes, not %d",
			leaving, t.Key, driver.MaxMark, len(e.Mark))}
	}
	// A message for the claim is of no use to anybody from here on.
	b.waiters.forget(t.ID)
	b.subscriber.alarms.left(t.ID)
	argv := []any{prefixed(t.ID), b.callName()}
	// An Enter whose outcome is unknown may arrive later: a tombstone keeps it out.
	_, retried := b.retried.Load(t.ID)
	unknown := e.Tombstone || retried
	if e != (driver.Exit{}) || unknown {
		tombstone := "0"
		if unknown {
			tombstone = micros(clampTTL(t.TTL))
		}
		argv = append(argv, string(e.Mark), lingerArg(e.Linger), tombstone)
	}
	cmd := b.command(leaveScript, t.Key, argv...)
	cmd.Durable = e.Mark != ""
	got := b.transport.Do(ctx, cmd)
	if got.Retried && e == (driver.Exit{}) && (got.Answer == "x" || unknown && got.Answer == "xl") {
		// The first copy did it, so long ago that the line has forgotten the call, or the
		// lease is over.
		return nil
	}
	return b.done(ctx, leaving, t.Key, got)
}

// Break ends the claim whose span holds token, in one request.
func (b *Backend) Break(ctx context.Context, key string, token int64, reason string, linger time.Duration) error {
	if err := b.ready(ctx); err != nil {
		return err
	}
	if token < 0 || len(reason) > driver.MaxNote {
		return &driver.PermanentError{Err: fmt.Errorf(
			"redis: %s %q: a token is not negative, and a reason has at most %d bytes", breaking, key, driver.MaxNote)}
	}
	cmd := b.command(breakScript, key, fmt.Sprintf("%019d", token), reason, b.callName(), lingerArg(linger))
	return b.done(ctx, breaking, key, b.transport.Do(ctx, cmd))
}

// lingerArg is d as scripts read it: in µs, 0 for none.
func lingerArg(d time.Duration) string {
	if d <= 0 {
		return "0"
	}
	return micros(clampTTL(d))
}

// done reads '+', or why the claim is gone. What only the master is known to have done is
// not done.
func (b *Backend) done(ctx context.Context, doing, key string, got transport.Result) error {
	s, _ := got.Answer.(string)
	switch {
	case strings.HasPrefix(s, "x"):
		return parseGone(s)
	case got.Err != nil:
		return b.failed(ctx, doing, key, got.Err)
	case s == "+":
		return nil
	}
	return badAnswer(doing, key, got.Answer)
}
