package redislock

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/limit"
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
	if len(e.Mark) > limit.Mark {
		return driver.Permanent(fmt.Errorf("redis: %s %q: a mark has at most %d bytes, not %d",
			leaving, t.Key, limit.Mark, len(e.Mark)))
	}
	sent := time.Now()
	got := b.transport.do(ctx, b.leaveRequest(t, e))
	if got.answer != "h" {
		b.waiters.forget(t.ID)
	}
	if got.repeated && e.Mark == "" && hasLeft(got.answer, time.Since(sent) >= e.Linger) {
		return nil // the first copy did it, or the lease is over. Of a mark the server says which
	}
	return b.done(ctx, leaving, t.Key, got)
}

// hasLeft reports whether the second copy of a Leave found what the first one leaves: the tombstone of a claim that
// lingers, that of the notice that it was under, or nothing if the claim lingers no more.
func hasLeft(answer any, lingersNoMore bool) bool {
	s, _ := answer.(string)
	return s == "xl" || strings.HasPrefix(s, "xn") || s == "x" && lingersNoMore
}

// leaveRequest is the script leave. An Enter whose outcome is unknown may arrive later: a tombstone keeps it out.
func (b *Backend) leaveRequest(t driver.Ticket, e driver.Exit) *request {
	linger, tombstone := lingerArg(e.Linger), int64(0)
	if e.IfWaiting {
		linger = -1
	}
	if _, repeated := b.repeated.Load(t.ID); repeated || e.Tombstone {
		tombstone = clampTTL(t.TTL).Microseconds()
	}
	r := b.request(leaveScript, t.Key, t.ID, linger, tombstone, e.Mark)
	r.durable = e.Mark != ""
	return r
}

// Break ends the claim whose span holds token, in one request.
func (b *Backend) Break(ctx context.Context, key string, token int64, how driver.Break) error {
	if err := b.ready(ctx); err != nil {
		return err
	}
	if token < 0 || len(how.Reason) > limit.Note {
		return driver.Permanent(fmt.Errorf(
			"redis: %s %q: a token is not negative, and a reason has at most %d bytes", breaking, key, limit.Note))
	}
	arg := lingerArg(how.Delay)
	if how.Delay < 0 {
		arg = -1 // opens the key at once
	}
	got := b.transport.do(ctx, b.request(breakScript, key, token, how.Reason, arg, lingerArg(how.Notice)))
	if got.repeated && got.answer == "x+" {
		return nil // the first copy did it
	}
	return b.done(ctx, breaking, key, got)
}

// lingerArg is d as scripts read it: in µs, 0 for none.
func lingerArg(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return clampTTL(d).Microseconds()
}

// done reads '+', or why the claim did not leave. What only the master is known to have done is
// not done.
func (b *Backend) done(ctx context.Context, doing, key string, got *request) error {
	s, _ := got.answer.(string)
	switch {
	case strings.HasPrefix(s, "x"):
		return parseGone(s)
	case got.err == nil && strings.HasPrefix(s, "n"):
		if notice, ok := parseNotice(s[1:]); ok {
			return notice
		}
	case got.err != nil:
		return b.answered(ctx, doing, key, got)
	case s == "+":
		return nil
	case s == "h":
		return driver.ErrGranted
	}
	return badAnswer(doing, key, got.answer)
}
