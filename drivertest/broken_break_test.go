package drivertest

import (
	"context"
	"strings"

	"github.com/fencelock/fencelock/driver"
)

var brokenBreaks = []mutant{
	{
		name: "Break does nothing",
		laws: "BreakEndsTheHolder BreakLetsTheNextIn BreakOfAWaiter BreakMatchesTheWholeSpan LingeringClaimCanBeBroken " + modelTest,
		wreck: func(b *broken) {
			b.brk = func(ctx context.Context, key string, token int64, reason string) error { return ctx.Err() }
		},
	},
	{
		name: "Break finds only the first token of a span",
		laws: "BreakMatchesTheWholeSpan " + modelTest,
		wreck: func(b *broken) {
			b.brk = func(ctx context.Context, key string, token int64, reason string) error {
				for _, s := range b.standings(key) {
					if s.Token == token {
						return b.Store.Break(ctx, key, token, reason)
					}
				}
				return driver.ErrGone{}
			}
		},
	},
	{
		name: "Break ends whoever holds",
		laws: "BreakMatchesTheWholeSpan BreakOfAWaiter " + modelTest,
		wreck: func(b *broken) {
			b.brk = func(ctx context.Context, key string, token int64, reason string) error {
				if s := b.standings(key); len(s) > 0 {
					token = s[0].Token
				}
				return b.Store.Break(ctx, key, token, reason)
			}
		},
	},
	{
		name: "Break ends everybody",
		laws: "BreakFindsOneOfMany BreakLetsTheNextIn " + modelTest,
		wreck: func(b *broken) {
			b.brk = func(ctx context.Context, key string, token int64, reason string) error {
				err := b.Store.Break(ctx, key, token, reason)
				for _, s := range b.standings(key) {
					if err == nil {
						b.Store.Break(ctx, key, s.Token, reason)
					}
				}
				return err
			}
		},
	},
	{
		name: "Break does not see waiters",
		laws: "BreakOfAWaiter AwaitLearnsOfABreak " + modelTest,
		wreck: func(b *broken) {
			b.brk = func(ctx context.Context, key string, token int64, reason string) error {
				for _, s := range b.standings(key) {
					if s.Token <= token && token < s.Token+s.Span && !s.Granted {
						return driver.ErrGone{}
					}
				}
				return b.Store.Break(ctx, key, token, reason)
			}
		},
	},
	{
		name: "Break does not see who lingers",
		laws: "LingeringClaimCanBeBroken " + modelTest,
		wreck: func(b *broken) {
			b.brk = func(ctx context.Context, key string, token int64, reason string) error {
				for _, s := range b.standings(key) {
					if s.Token <= token && token < s.Token+s.Span && s.Lingering && reason != "end of test" {
						return driver.ErrGone{}
					}
				}
				return b.Store.Break(ctx, key, token, reason)
			}
		},
	},
	{
		name: "Break of nobody is well",
		laws: "BreakOfNobody BreakOfAnExpiredClaimFindsNobody BreakMatchesTheWholeSpan BreakOrLeaveNotBoth " + modelTest,
		wreck: func(b *broken) {
			b.brk = func(ctx context.Context, key string, token int64, reason string) error {
				b.Store.Break(ctx, key, token, reason)
				return ctx.Err()
			}
		},
	},
	{
		name: "Break does not keep the id out",
		laws: "BreakEndsTheHolder BreakKeepsTheIdOut BreakReasonIsText " + modelTest,
		wreck: func(b *broken) {
			b.brk = func(ctx context.Context, key string, token int64, reason string) error {
				t, ok := b.find(func(t driver.Ticket) bool {
					return t.Key == key && t.Token <= token && token < t.Token+t.Span
				})
				if !ok {
					return driver.ErrGone{}
				}
				return b.Store.Leave(ctx, t, driver.Exit{})
			}
		},
	},
	{
		name: "Break keeps the id out for a moment",
		laws: "BreakKeepsTheIdOut",
		wreck: func(b *broken) {
			b.enter = func(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
				t, err := b.Store.Enter(ctx, c)
				if g, ok := err.(driver.ErrGone); ok && g.Broken && b.count(c.ID, 1) > 0 {
					return driver.Ticket{}, driver.ErrGone{}
				}
				return t, err
			}
		},
	},
	{
		name: "Break forgets the reason",
		laws: "BreakEndsTheHolder BreakReasonIsText BreakKeepsTheIdOut AwaitLearnsOfABreak AlarmTellsTheHolder " + modelTest,
		wreck: func(b *broken) {
			b.brk = func(ctx context.Context, key string, token int64, reason string) error {
				return b.Store.Break(ctx, key, token, "")
			}
		},
	},
	{
		name: "Break cuts the reason",
		laws: "BreakReasonIsText",
		wreck: func(b *broken) {
			b.brk = func(ctx context.Context, key string, token int64, reason string) error {
				return b.Store.Break(ctx, key, token, strings.Map(func(r rune) rune {
					if r > 127 {
						return '?'
					}
					return r
				}, reason))
			}
		},
	},
	{
		name: "the alarm never rings",
		laws: "AlarmTellsTheHolder",
		wreck: func(b *broken) {
			b.alarm = func(func(string, driver.ErrGone)) func() { return func() {} }
		},
	},
}
