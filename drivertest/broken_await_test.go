package drivertest

import (
	"context"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// byTimer waits for a second, and then looks.
func (b *broken) byTimer(ctx context.Context, t driver.Ticket) (driver.Ticket, error) {
	timer := time.NewTimer(time.Second)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return driver.Ticket{}, ctx.Err()
	}
	return b.look(t)
}

var brokenAwaits = []breaker{
	{"only the first is woken", func(b *broken) {
		b.await = func(ctx context.Context, t driver.Ticket) (driver.Ticket, error) {
			for i, s := range b.standings(t.Key) {
				first := i > 0 && s.ID == driver.ShortID(t.ID) && b.standings(t.Key)[i-1].Weight != s.Weight
				if first {
					return b.Store.Await(ctx, t)
				}
			}
			return b.byTimer(ctx, t)
		}
	}, "WakeAll WakeAllWhenAWaiterGivesUp WakeAllAfterBreak WakeAllAfterExpiry WakeAllAfterAWaitersExpiry " +
		"WakeAllWhoFit"},
	{"nobody is woken", func(b *broken) {
		b.await = b.byTimer
	}, "WakeAll WakeAllWhenAWaiterGivesUp WakeAllAfterBreak WakeAllAfterExpiry WakeAllWhoFit WaitersWakeOnAnyKey " +
		"GrantBeforeAwaitIsNotLost"},
	{"Await does not look first", func(b *broken) {
		b.await = func(ctx context.Context, t driver.Ticket) (driver.Ticket, error) {
			if now, err := b.look(t); err == nil && now.Granted {
				return b.byTimer(ctx, t)
			}
			return b.Store.Await(ctx, t)
		}
	}, "GrantBeforeAwaitIsNotLost"},
	{"odd keys are not woken", func(b *broken) {
		b.await = func(ctx context.Context, t driver.Ticket) (driver.Ticket, error) {
			if strings.ContainsAny(t.Key, "{}\x00\n'☂") {
				return b.byTimer(ctx, t)
			}
			return b.Store.Await(ctx, t)
		}
	}, "WaitersWakeOnAnyKey"},
	{"Await of a holder takes its time", func(b *broken) {
		b.await = func(ctx context.Context, t driver.Ticket) (driver.Ticket, error) {
			for range 10 {
				if t.Granted {
					b.byTimer(ctx, t)
				}
			}
			return b.Store.Await(ctx, t)
		}
	}, "AwaitOfAHolderReturns"},
	{"Await returns only for news", func(b *broken) {
		b.await = func(ctx context.Context, t driver.Ticket) (driver.Ticket, error) {
			for {
				now, err := b.Store.Await(ctx, t)
				if err != nil || now.Granted || now.Ahead != t.Ahead || b.count("rounds", 1) > 100 {
					return now, err
				}
			}
		}
	}, "AwaitReturnsAfterAboutASecond"},
	{"Await does not wait", func(b *broken) {
		b.await = func(ctx context.Context, t driver.Ticket) (driver.Ticket, error) {
			if err := ctx.Err(); err != nil {
				return t, err
			}
			return b.look(t)
		}
	}, "AwaitReturnsAfterAboutASecond ExpiredHolderLetsWaiterIn LingerEndsByItself"},
	{"Await does not hear of the end", func(b *broken) {
		b.await = func(ctx context.Context, t driver.Ticket) (driver.Ticket, error) {
			now, err := b.Store.Await(ctx, t)
			if driver.Gone(err) {
				b.byTimer(ctx, t)
				return t, ctx.Err()
			}
			return now, err
		}
	}, "AwaitLearnsOfABreak AwaitLearnsOfALeave ExpiredClaimIsGone AwaitDoesNotRenew SecondLeaveIsGone " +
		"NoResurrection Model"},
	{"Await renews", func(b *broken) {
		b.await = func(ctx context.Context, t driver.Ticket) (driver.Ticket, error) {
			b.Store.Renew(ctx, []driver.Ticket{t})
			return b.Store.Await(ctx, t)
		}
	}, "AwaitDoesNotRenew Model"},
	{"Await brings claims back", func(b *broken) {
		b.await = func(ctx context.Context, t driver.Ticket) (driver.Ticket, error) {
			now, err := b.Store.Await(ctx, t)
			if driver.Gone(err) {
				return b.Store.Enter(ctx, t.Claim)
			}
			return now, err
		}
	}, "NoResurrection Model"},
	{"Await draws a token", func(b *broken) {
		b.await = func(ctx context.Context, t driver.Ticket) (driver.Ticket, error) {
			t, err := b.Store.Await(ctx, t)
			t.Token++
			return t, err
		}
	}, "TokenStaysTheSame Model"},
	{"Await loses the mark", func(b *broken) {
		b.await = func(ctx context.Context, t driver.Ticket) (driver.Ticket, error) {
			t, err := b.Store.Await(ctx, t)
			t.Mark = ""
			return t, err
		}
	}, "MarkReachesTheWaiter Model"},
	{"Await ends slowly", func(b *broken) {
		b.await = func(ctx context.Context, t driver.Ticket) (driver.Ticket, error) {
			now, err := b.Store.Await(ctx, t)
			if ctx.Err() != nil {
				for range 10 {
					b.byTimer(context.Background(), t)
				}
			}
			return now, err
		}
	}, "AwaitEndsWithItsContext"},
	{"Await takes the claim with it", func(b *broken) {
		b.await = func(ctx context.Context, t driver.Ticket) (driver.Ticket, error) {
			now, err := b.Store.Await(ctx, t)
			if ctx.Err() != nil {
				b.Store.Leave(context.Background(), t, driver.Exit{})
			}
			return now, err
		}
	}, "AwaitEndsWithItsContext"},
}
