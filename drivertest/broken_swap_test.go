package drivertest

import (
	"context"

	"github.com/fencelock/fencelock/driver"
)

var brokenSwaps = []mutant{
	{
		name: "a Swap leaves the old claim in line",
		laws: "SwapIsLeaveAndEnter",
		wreck: func(b *broken) {
			b.swap = func(ctx context.Context, t driver.Ticket, c driver.Claim) (driver.Ticket, bool, error) {
				n, err := b.Store.Enter(ctx, c)
				return n, true, err
			}
		},
	},
	{
		name: "a Swap answers the old token",
		laws: "SwapIsLeaveAndEnter EnterFindsWhatASwapHasEntered",
		wreck: func(b *broken) {
			b.swap = func(ctx context.Context, t driver.Ticket, c driver.Claim) (driver.Ticket, bool, error) {
				n, done, err := b.Store.Swap(ctx, t, c)
				n.Token = t.Token
				return n, done, err
			}
		},
	},
	{
		name: "a Swap goes before whoever waits",
		laws: "SwapWaitsBehindOthers",
		wreck: func(b *broken) {
			b.swap = func(ctx context.Context, t driver.Ticket, c driver.Claim) (driver.Ticket, bool, error) {
				return driver.Ticket{Claim: c, Token: t.Token + 1, Granted: true}, true, nil
			}
		},
	},
	{
		name: "a Swap enters whatever became of the old claim",
		laws: "SwapOfAClaimThatIsGone SwapOfAClaimThatHasExpired",
		wreck: func(b *broken) {
			b.swap = func(ctx context.Context, t driver.Ticket, c driver.Claim) (driver.Ticket, bool, error) {
				_ = b.Store.Leave(ctx, t, driver.Exit{})
				n, err := b.Store.Enter(ctx, c)
				return n, err == nil, err
			}
		},
	},
	{
		name: "a Swap that says it did nothing has let the old claim leave",
		laws: "SwapIsLeaveAndEnter",
		wreck: func(b *broken) {
			b.swap = func(ctx context.Context, t driver.Ticket, c driver.Claim) (driver.Ticket, bool, error) {
				return driver.Ticket{}, false, b.Store.Leave(ctx, t, driver.Exit{})
			}
		},
	},
}
