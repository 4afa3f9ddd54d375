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
	{"only the first is woken",
		"WakeAll WakeAllWhenAWaiterGivesUp WakeAllAfterBreak WakeAllAfterExpiry WakeAllAfterAWaitersExpiry " +
			"WakeAllWhoFit",
		func(b *broken) {
			b.await = func(ctx context.Context, t driver.Ticket) (driver.Ticket, error) {
				for i, s := range b.standings(t.Key) {
					first := i > 0 && s.ID == driver.ShortID(t.ID) && b.standings(t.Key)[i-1].Weight != s.Weight
					if first {
						return b.Store.Await(ctx, t)
					}
				}
				return b.byTimer(ctx, t)
			}
		}},
	{"nobody is woken",
		"WakeAll WakeAllWhenAWaiterGivesUp WakeAllAfterBreak WakeAllAfterExpiry WakeAllWhoFit " +
			"WaitersWakeOnAnyKey GrantBeforeAwaitIsNotLost",
		func(b *broken) {
			b.await = b.byTimer
		}},
	{"Await does not look first", "GrantBeforeAwaitIsNotLost",
		func(b *broken) {
			b.await = func(ctx context.Context, t driver.Ticket) (driver.Ticket, error) {
				if now, err := b.look(t); err == nil && now.Granted {
					return b.byTimer(ctx, t)
				}
				return b.Store.Await(ctx, t)
			}
		}},
	{"odd keys are not woken", "WaitersWakeOnAnyKey",
		func(b *broken) {
			b.await = func(ctx context.Context, t driver.Ticket) (driver.Ticket, error) {
				if strings.ContainsAny(t.Key, "{}\x00\n'☂") {
					return b.byTimer(ctx, t)
				}
				return b.Store.Await(ctx, t)
			}
		}},
	{"Await of a holder takes its time", "AwaitOfAHolderReturns",
		func(b *broken) {
			b.await = func(ctx context.Context, t driver.Ticket) (driver.Ticket, error) {
				for range 10 {
					if t.Granted {
						b.byTimer(ctx, t)
					}
				}
				return b.Store.Await(ctx, t)
			}
		}},
	{"Await returns only for news", "AwaitReturnsAfterAboutASecond",
		func(b *broken) {
			b.await = func(ctx context.Context, t driver.Ticket) (driver.Ticket, error) {
				for {
					now, err := b.Store.Await(ctx, t)
					if err != nil || now.Granted || now.Ahead != t.Ahead || b.count("rounds", 1) > 100 {
						return now, err
					}
				}
			}
		}},
	{"Await does not wait", "AwaitReturnsAfterAboutASecond ExpiredHolderLetsWaiterIn LingerEndsByItself",
		func(b *broken) {
			b.await = func(ctx context.Context, t driver.Ticket) (driver.Ticket, error) {
				if err := ctx.Err(); err != nil {
					return t, err
				}
				return b.look(t)
			}
		}},
	{"Await does not hear of the end",
		"AwaitLearnsOfABreak AwaitLearnsOfALeave ExpiredClaimIsGone AwaitDoesNotRenew SecondLeaveIsGone " +
			"NoResurrection " + modelTest,
		func(b *broken) {
			b.await = func(ctx context.Context, t driver.Ticket) (driver.Ticket, error) {
				now, err := b.Store.Await(ctx, t)
				if driver.Gone(err) {
					b.byTimer(ctx, t)
					return t, ctx.Err()
				}
				return now, err
			}
		}},
	{"Await renews", "AwaitDoesNotRenew " + modelTest,
		func(b *broken) {
			b.await = func(ctx context.Context, t driver.Ticket) (driver.Ticket, error) {
				b.Store.Renew(ctx, []driver.Ticket{t})
				return b.Store.Await(ctx, t)
			}
		}},
	{"Await brings claims back", "NoResurrection " + modelTest,
		func(b *broken) {
			b.await = func(ctx context.Context, t driver.Ticket) (driver.Ticket, error) {
				now, err := b.Store.Await(ctx, t)
				if driver.Gone(err) {
					return b.Store.Enter(ctx, t.Claim)
				}
				return now, err
			}
		}},
	{"Await draws a token", "TokenStaysTheSame " + modelTest,
		func(b *broken) {
			b.await = func(ctx context.Context, t driver.Ticket) (driver.Ticket, error) {
				t, err := b.Store.Await(ctx, t)
				t.Token++
				return t, err
			}
		}},
	{"Await loses the mark", "MarkReachesTheWaiter " + modelTest,
		func(b *broken) {
			b.await = func(ctx context.Context, t driver.Ticket) (driver.Ticket, error) {
				t, err := b.Store.Await(ctx, t)
				t.Mark = ""
				return t, err
			}
		}},
	{"Await ends slowly", "AwaitEndsWithItsContext",
		func(b *broken) {
			b.await = func(ctx context.Context, t driver.Ticket) (driver.Ticket, error) {
				now, err := b.Store.Await(ctx, t)
				if ctx.Err() != nil {
					for range 10 {
						b.byTimer(context.Background(), t)
					}
				}
				return now, err
			}
		}},
	{"Await takes the claim with it", "AwaitEndsWithItsContext",
		func(b *broken) {
			b.await = func(ctx context.Context, t driver.Ticket) (driver.Ticket, error) {
				now, err := b.Store.Await(ctx, t)
				if ctx.Err() != nil {
					b.Store.Leave(context.Background(), t, driver.Exit{})
				}
				return now, err
			}
		}},
}
