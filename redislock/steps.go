package redislock

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// memory is how long the record of an empty line stays. It is a day after the
// clock has overtaken the tokens of the longest span.
const memory = 24*time.Hour + time.Second

// Enter joins the line of c.Key, in one request.
func (b *Backend) Enter(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
	if err := b.ready(ctx); err != nil {
		return driver.Ticket{}, err
	}
	return b.enter(ctx, c, false)
}

// enter is Enter, and Reenter of a claim that was lost.
func (b *Backend) enter(ctx context.Context, c driver.Claim, again bool) (driver.Ticket, error) {
	if err := check(&c, b.member); err != nil {
		return driver.Ticket{}, err
	}
	const doing = "entering the line of"
	noWait := "0"
	if c.NoWait {
		noWait = "1"
	} else {
		// A push may overtake the answer.
		b.waits.expect(c.ID)
	}
	epoch := b.ear.epoch.Load()
	sent := time.Now()
	var st *step
	if c.Ballot != 0 {
		st = b.ballotStep(&c, noWait, again)
	} else {
		st = b.step(enterScript, c.Key, writeClaim(&c, b.channel), b.lasts(c.TTL), noWait)
	}
	st.lasts = true
	answer, err := b.sender.run(ctx, st)
	if err != nil {
		b.waits.forget(c.ID)
		return driver.Ticket{}, failed(ctx, doing, c.Key, err)
	}
	t, soonest, ok := ticket(c, answer)
	if st.repeated {
		b.doubts.add(c.ID)
	}
	if !ok {
		b.waits.forget(c.ID)
		err := refusal(c.Key, answer)
		if st.repeated && !driver.Gone(err) {
			// The other sending may arrive when the lock is free, and nobody leaves a line in
			// which nobody was.
			if err := b.Leave(ctx, driver.Ticket{Claim: c}, driver.Exit{}); err != nil && !driver.Gone(err) {
				return driver.Ticket{}, err
			}
		}
		return driver.Ticket{}, err
	}
	if err := b.sender.replicas.judge(st); err != nil {
		b.waits.forget(c.ID)
		b.takeBack(ctx, c)
		return driver.Ticket{}, failed(ctx, doing, c.Key, err)
	}
	b.sender.recycle(st)
	if t.Granted {
		b.waits.forget(c.ID)
		b.ear.heed(c.ID, c.Key, epoch)
		return t, nil
	}
	b.waits.note(c.ID, epoch, &t, sent, time.Now().Add(soonest))
	b.ear.open()
	return t, nil
}

// takeBack makes a claim leave that too few replicas know of. If that fails too, it
// is the caller's to leave, as after any Enter whose outcome is unknown.
func (b *Backend) takeBack(ctx context.Context, c driver.Claim) {
	_, _ = b.sender.run(ctx, b.step(leaveScript, c.Key, tag(c.ID), b.call()))
}

// refusal reads why enter gave no ticket.
func refusal(key string, answer any) error {
	switch v := answer.(type) {
	case string:
		switch {
		case v == "k":
			return driver.ErrKind
		case strings.HasPrefix(v, "x"):
			return goneFor(v)
		}
		return ballotRefusal("entering the line of", key, v)
	case []any:
		r := reply{parts: v}
		if r.text() != "n" {
			break
		}
		busy := r.busy(int(r.number()))
		if !r.bad {
			return busy
		}
	}
	return unknown("entering the line of", key, answer)
}

// Leave takes the claim of t out of its line, in one request. It works when the
// server is out of memory.
func (b *Backend) Leave(ctx context.Context, t driver.Ticket, e driver.Exit) error {
	if err := b.ready(ctx); err != nil {
		return err
	}
	const doing = "leaving the line of"
	if len(e.Mark) > driver.MaxMark {
		return &driver.PermanentError{Err: fmt.Errorf("redis: %s %q: a mark has at most %d bytes, not %d", doing, t.Key, driver.MaxMark, len(e.Mark))}
	}
	// What is heard of the claim from here on is of no use to anybody.
	b.waits.forget(t.ID)
	b.ear.disregard(t.ID)
	argv := []any{tag(t.ID), b.call()}
	unsure := t.Token == 0 || b.doubts.has(t.ID)
	if e != (driver.Exit{}) || unsure {
		linger, rest := "0", "0"
		if e.Linger > 0 {
			linger = micros(clampTTL(e.Linger))
		}
		if unsure {
			rest = micros(clampTTL(t.TTL))
		}
		argv = append(argv, string(e.Mark), linger, rest)
	}
	st := b.step(leaveScript, t.Key, argv...)
	st.lasts = e.Mark != ""
	answer, err := b.sender.run(ctx, st)
	if err == nil {
		err = b.sender.replicas.judge(st)
	}
	if err != nil {
		return failed(ctx, doing, t.Key, err)
	}
	repeated := st.repeated
	b.sender.recycle(st)
	if repeated && e == (driver.Exit{}) && t.Token != 0 && (answer == "x" || unsure && answer == "xl") {
		// The first one did it, so long ago that the line has forgotten the call, or the
		// lease had its time.
		return nil
	}
	return done(doing, t.Key, answer)
}

// Break ends the claim whose span holds token, in one request.
func (b *Backend) Break(ctx context.Context, key string, token int64, reason string) error {
	if err := b.ready(ctx); err != nil {
		return err
	}
	const doing = "breaking a claim on"
	if token < 0 || len(reason) > driver.MaxNote {
		return &driver.PermanentError{Err: fmt.Errorf("redis: %s %q: a token is not negative, and a reason has at most %d bytes", doing, key, driver.MaxNote)}
	}
	answer, err := b.sender.run(ctx, b.step(breakScript, key,
		fmt.Sprintf("%019d", token), reason, b.call()))
	if err != nil {
		return failed(ctx, doing, key, err)
	}
	return done(doing, key, answer)
}

// done reads '+' or why the claim is gone.
func done(doing, key string, answer any) error {
	s, _ := answer.(string)
	switch {
	case s == "+":
		return nil
	case strings.HasPrefix(s, "x"):
		return goneFor(s)
	}
	return unknown(doing, key, answer)
}
