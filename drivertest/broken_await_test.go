package drivertest

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/driverutil"
)

// byTimer waits for a second, and then looks.
func (b *broken) byTimer(ctx context.Context, t driver.Ticket) (driver.Ticket, error) {
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
		return driver.Ticket{}, ctx.Err()
	}
	return b.look(t)
}

// slowIf has Await wait by a timer, if f says so.
func (b *broken) slowIf(f func(t driver.Ticket) bool) {
	b.await = func(ctx context.Context, t driver.Ticket) (driver.Ticket, error) {
		if f(t) {
			return b.byTimer(ctx, t)
		}
		return b.Member.Await(ctx, t)
	}
}

// awaited lets f change the ticket that Await answers.
func (b *broken) awaited(f func(t *driver.Ticket)) {
	b.await = func(ctx context.Context, t driver.Ticket) (driver.Ticket, error) {
		t, err := b.Member.Await(ctx, t)
		f(&t)
		return t, err
	}
}

var brokenAwaits = []breaker{
	{"only the first is woken", func(b *broken) {
		b.slowIf(func(t driver.Ticket) bool {
			line := b.standings(t.Key)
			i := slices.IndexFunc(line, func(s driver.Standing) bool { return s.ID == driverutil.ShortID(t.ID) })
			return i < 1 || line[i-1].Weight == line[i].Weight
		})
	}, "WakeAll WakeAllWhenAWaiterGivesUp WakeAllAfterBreak WakeAllAfterExpiry WakeAllAfterAWaitersExpiry " +
		"WakeAllWhoFit"},
	{"nobody is woken", func(b *broken) { b.await = b.byTimer },
		"WakeAll WakeAllWhenAWaiterGivesUp WakeAllAfterBreak WakeAllAfterExpiry WakeAllWhoFit WaitersWakeOnAnyKey " +
			"GrantBeforeAwaitIsNotLost"},
	{"Await does not look first", func(b *broken) {
		b.slowIf(func(t driver.Ticket) bool {
			now, err := b.look(t)
			return err == nil && now.Granted
		})
	}, "GrantBeforeAwaitIsNotLost"},
	{"odd keys are not woken", func(b *broken) {
		b.slowIf(func(t driver.Ticket) bool { return strings.ContainsAny(t.Key, "{}\x00\n'☂") })
	}, "WaitersWakeOnAnyKey"},
	{"Await of a holder takes its time", func(b *broken) {
		b.await = func(ctx context.Context, t driver.Ticket) (driver.Ticket, error) {
			for range 10 {
				if t.Granted {
					b.byTimer(ctx, t)
				}
			}
			return b.Member.Await(ctx, t)
		}
	}, "AwaitOfAHolderReturns"},
	{"Await returns only for news", func(b *broken) {
		b.await = func(ctx context.Context, t driver.Ticket) (driver.Ticket, error) {
			for {
				now, err := b.Member.Await(ctx, t)
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
			now, err := b.Member.Await(ctx, t)
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
			b.Member.Renew(ctx, []driver.Ticket{t})
			return b.Member.Await(ctx, t)
		}
	}, "AwaitDoesNotRenew Model"},
	{"Await brings claims back", func(b *broken) {
		b.await = func(ctx context.Context, t driver.Ticket) (driver.Ticket, error) {
			now, err := b.Member.Await(ctx, t)
			if driver.Gone(err) {
				return b.Member.Enter(ctx, t.Claim)
			}
			return now, err
		}
	}, "NoResurrection Model"},
	{"Await draws a token", func(b *broken) {
		b.awaited(func(t *driver.Ticket) { t.Token++ })
	}, "TokenStaysTheSame Model"},
	{"Await loses the mark", func(b *broken) {
		b.awaited(func(t *driver.Ticket) { t.Mark = "" })
	}, "MarkReachesTheWaiter Model"},
	{"Await ends slowly", func(b *broken) {
		b.await = func(ctx context.Context, t driver.Ticket) (driver.Ticket, error) {
			now, err := b.Member.Await(ctx, t)
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
			now, err := b.Member.Await(ctx, t)
			if ctx.Err() != nil {
				b.Member.Leave(context.Background(), t, driver.Exit{})
			}
			return now, err
		}
	}, "AwaitEndsWithItsContext"},
}
