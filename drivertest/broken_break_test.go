package drivertest

import (
	"context"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// breaksFor lets f change for how long what is broken lingers. now is what the token's claim is like.
func (b *broken) breaksFor(f func(now driver.Standing, linger time.Duration) time.Duration) {
	b.brk = func(ctx context.Context, key string, token int64, how driver.Break) error {
		for _, s := range b.standings(key) {
			if s.Token <= token && token < s.Token+s.Span {
				how.Delay = f(s, how.Delay)
			}
		}
		return b.Member.Break(ctx, key, token, how)
	}
}

// overlooks has Break not find a claim that has the token, if f says so.
func (b *broken) overlooks(f func(s driver.Standing, token int64, reason string) bool) {
	b.brk = func(ctx context.Context, key string, token int64, how driver.Break) error {
		for _, s := range b.standings(key) {
			if s.Token <= token && token < s.Token+s.Span && f(s, token, how.Reason) {
				return driver.GoneError{}
			}
		}
		return b.Member.Break(ctx, key, token, how)
	}
}

var brokenBreaks = []breaker{
	{"Break does nothing", func(b *broken) {
		b.brk = func(ctx context.Context, key string, token int64, how driver.Break) error {
			return ctx.Err()
		}
	}, "BreakEndsTheHolder BreakLetsTheNextIn BreakOfAWaiter BreakMatchesTheWholeSpan LingeringClaimCanBeBroken " +
		"Model"},
	{"Break finds only the first token of a span", func(b *broken) {
		b.overlooks(func(s driver.Standing, token int64, _ string) bool { return s.Token != token })
	}, "BreakMatchesTheWholeSpan Model"},
	{"Break ends whoever holds", func(b *broken) {
		b.brk = func(ctx context.Context, key string, token int64, how driver.Break) error {
			if s := b.standings(key); len(s) > 0 {
				token = s[0].Token
			}
			return b.Member.Break(ctx, key, token, how)
		}
	}, "BreakMatchesTheWholeSpan BreakOfAWaiter Model"},
	{"Break ends everybody", func(b *broken) {
		b.brk = func(ctx context.Context, key string, token int64, how driver.Break) error {
			err := b.Member.Break(ctx, key, token, how)
			for _, s := range b.standings(key) {
				if err == nil {
					b.Member.Break(ctx, key, s.Token, how)
				}
			}
			return err
		}
	}, "BreakFindsOneOfMany BreakLetsTheNextIn Model"},
	{"Break does not see waiters", func(b *broken) {
		b.overlooks(func(s driver.Standing, _ int64, _ string) bool { return !s.Granted })
	}, "BreakOfAWaiter AwaitLearnsOfABreak Model"},
	{"Break does not see who lingers", func(b *broken) {
		b.overlooks(func(s driver.Standing, _ int64, reason string) bool {
			return s.Lingering && reason != "end of test"
		})
	}, "LingeringClaimCanBeBroken Model"},
	{"Break of nobody is well", func(b *broken) {
		b.brk = func(ctx context.Context, key string, token int64, how driver.Break) error {
			b.Member.Break(ctx, key, token, how)
			return ctx.Err()
		}
	}, "BreakOfNobody BreakOfAnExpiredClaimFindsNobody BreakMatchesTheWholeSpan BreakOrLeaveNotBoth Model"},
	{"Break does not keep the id out", func(b *broken) {
		b.brk = func(ctx context.Context, key string, token int64, how driver.Break) error {
			t, ok := b.find(func(t driver.Ticket) bool {
				return t.Key == key && t.Token <= token && token < t.Token+t.Span
			})
			if !ok {
				return driver.GoneError{}
			}
			return b.Member.Leave(ctx, t, driver.Exit{})
		}
	}, "BreakEndsTheHolder BreakKeepsTheIdOut BreakReasonIsText Model"},
	{"Break forgets the reason", func(b *broken) {
		b.brk = func(ctx context.Context, key string, token int64, how driver.Break) error {
			return b.Member.Break(ctx, key, token, driver.Break{Delay: how.Delay})
		}
	}, "BreakEndsTheHolder BreakReasonIsText BreakKeepsTheIdOut AwaitLearnsOfABreak AlarmTellsTheHolder Model"},
	{"Break cuts the reason", func(b *broken) {
		b.brk = func(ctx context.Context, key string, token int64, how driver.Break) error {
			how.Reason = strings.Map(func(r rune) rune {
				if r > 127 {
					return '?'
				}
				return r
			}, how.Reason)
			return b.Member.Break(ctx, key, token, how)
		}
	}, "BreakReasonIsText"},
	{"Break never lingers", func(b *broken) {
		b.breaksFor(func(driver.Standing, time.Duration) time.Duration { return 0 })
	}, "BreakKeepsTheKeyClosed BreakLingersBeforeTheNext BreakThatLingersIsHeardAtOnce " +
		"BreakThatLingersKeepsTheIdOut SecondBreakLengthensTheLinger Model"},
	{"Break forgets the lock-delay of the claim", func(b *broken) {
		b.breaksFor(func(now driver.Standing, delay time.Duration) time.Duration {
			if !now.Lingering && delay == 0 {
				delay = -1
			}
			return delay
		})
	}, "BreakKeepsTheLockDelay Model"},
	{"the lock-delay of the claim comes before that of the Break", func(b *broken) {
		b.breaksFor(func(now driver.Standing, delay time.Duration) time.Duration {
			if !now.Lingering && now.LockDelay > 0 {
				delay = 0
			}
			return delay
		})
	}, "BreakKeepsTheLockDelay Model"},
	{"Break lingers when the lease is over", func(b *broken) {
		b.breaksFor(func(now driver.Standing, linger time.Duration) time.Duration {
			if linger > 0 {
				linger += now.Left
			}
			return linger
		})
	}, "BreakKeepsTheKeyClosed Model"},
	{"Break lingers forever", func(b *broken) {
		b.breaksFor(func(now driver.Standing, linger time.Duration) time.Duration {
			if now.Lingering && linger < 0 {
				linger = longLease
			}
			return linger
		})
	}, "SecondBreakEndsTheLinger LingeringClaimCanBeBroken Model"},
	{"a repeated Break ends the linger", func(b *broken) {
		b.breaksFor(func(now driver.Standing, linger time.Duration) time.Duration {
			if now.Lingering && linger == 0 {
				linger = -1
			}
			return linger
		})
	}, "RepeatedBreakKeepsTheLinger LingeringClaimCanBeBroken Model"},
	{"a second Break with a shorter delay ends the linger", func(b *broken) {
		b.breaksFor(func(now driver.Standing, linger time.Duration) time.Duration {
			if now.Lingering && linger > 0 && linger < now.Left {
				linger = -1
			}
			return linger
		})
	}, "SecondBreakNeverShortensTheLinger"},
	{"Break does not change an end that is set", func(b *broken) {
		b.breaksFor(func(now driver.Standing, linger time.Duration) time.Duration {
			if now.Lingering && linger > 0 {
				linger = now.Left
			}
			return linger
		})
	}, "SecondBreakLengthensTheLinger"},
	{"waiters linger after a break", func(b *broken) {
		b.brk = func(ctx context.Context, key string, token int64, how driver.Break) error {
			for _, s := range b.standings(key) {
				t, ok := b.find(func(t driver.Ticket) bool { return t.Token == s.Token && s.Token == token })
				if ok && !s.Granted && how.Delay > 0 {
					err := b.Member.Break(ctx, key, token, driver.Break{Reason: how.Reason})
					t.ID = newID()
					b.Member.Enter(ctx, t.Claim)
					return err
				}
			}
			return b.Member.Break(ctx, key, token, how)
		}
	}, "BreakOfAWaiterDoesNotLinger Model"},
	{"whoever is broken and lingers has left", func(b *broken) {
		b.brk = func(ctx context.Context, key string, token int64, how driver.Break) error {
			t, ok := b.find(func(t driver.Ticket) bool { return t.Key == key && t.Token == token })
			if !ok || how.Delay == 0 {
				return b.Member.Break(ctx, key, token, how)
			}
			return b.Member.Leave(ctx, t, driver.Exit{Linger: how.Delay})
		}
	}, "BreakThatLingersIsHeardAtOnce BreakThatLingersKeepsTheIdOut Model"},
	{"whoever is broken and lingers may go on", func(b *broken) {
		b.brk = func(ctx context.Context, key string, token int64, how driver.Break) error {
			if how.Delay == 0 {
				return b.Member.Break(ctx, key, token, how)
			}
			return ctx.Err()
		}
	}, "BreakThatLingersIsHeardAtOnce BreakThatLingersKeepsTheIdOut BreakKeepsTheKeyClosed SecondBreakLengthensTheLinger " +
		"Model"},
	{"the alarm is never raised", func(b *broken) {
		b.alarm = func(func(string, driver.GoneError)) func() { return func() {} }
	}, "AlarmTellsTheHolder"},
}
