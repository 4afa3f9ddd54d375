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

// renews lets f see each ticket and its answer.
func (b *broken) renews(f func(t driver.Ticket, err error) error) {
	b.renew = func(ctx context.Context, ts []driver.Ticket) []error {
		errs := b.Member.Renew(ctx, ts)
		for i := range errs {
			if ctx.Err() == nil {
				errs[i] = f(ts[i], errs[i])
			}
		}
		return errs
	}
}

// renewsWith lets f change each ticket on its way in.
func (b *broken) renewsWith(f func(t *driver.Ticket)) {
	b.renew = func(ctx context.Context, ts []driver.Ticket) []error {
		ts = slices.Clone(ts)
		for i := range ts {
			f(&ts[i])
		}
		return b.Member.Renew(ctx, ts)
	}
}

var brokenRenewals = []breaker{
	{"Renew brings claims back", func(b *broken) {
		b.renews(func(t driver.Ticket, err error) error {
			if driver.Gone(err) {
				t.ID = newID() // past any tombstone
				_, err = b.Member.Enter(context.Background(), t.Claim)
			}
			return err
		})
	}, "NoResurrection NoResurrectionAfterExpiry LeaveEndsRenewals SecondLeaveIsGone ExpiredClaimIsGone " +
		"BreakFindsOneOfMany Model"},
	{"Renew is for the key, not for the claim", func(b *broken) {
		b.renews(func(t driver.Ticket, err error) error {
			if len(b.standings(t.Key)) > 0 {
				return nil
			}
			return err
		})
	}, "NoResurrectionBesideASuccessor BreakFindsOneOfMany WaiterLeaves Model"},
	{"Renew does nothing", func(b *broken) {
		b.renew = func(ctx context.Context, ts []driver.Ticket) []error {
			errs := make([]error, len(ts))
			for i := range ts {
				_, errs[i] = b.look(ts[i])
			}
			return errs
		}
	}, "RenewKeepsClaimsAlive GrantedTTLIsKept RenewTakesTheTicketsTTL RenewalBesideAnEnterCounts Model"},
	{"Renew serves holders only", func(b *broken) {
		b.renews(func(t driver.Ticket, err error) error {
			if err == nil {
				if now, _ := b.look(t); !now.Granted {
					b.Member.Leave(context.Background(), t, driver.Exit{})
					return driver.GoneError{}
				}
			}
			return err
		})
	}, "RenewKeepsClaimsAlive AwaitEndsWithItsContext Model"},
	{"Renew shortens", func(b *broken) {
		ends := map[string]time.Time{}
		b.renews(func(t driver.Ticket, err error) error {
			ends[driverutil.ShortID(t.ID)] = time.Now().Add(t.TTL)
			return err
		})
		b.edit(func(l driver.Line) driver.Line {
			l.Claims = slices.DeleteFunc(l.Claims, func(s driver.Standing) bool {
				end, ok := ends[s.ID]
				return ok && !end.After(time.Now())
			})
			return l
		})
	}, "RenewNeverShortens"},
	{"Renew keeps to the first TTL", func(b *broken) {
		b.renewsWith(func(t *driver.Ticket) {
			if first, ok := b.known(t.Key, t.ID); ok {
				t.TTL = first.TTL
			}
		})
	}, "RenewTakesTheTicketsTTL Model"},
	{"Renew answers backwards", func(b *broken) {
		b.renew = func(ctx context.Context, ts []driver.Ticket) []error {
			errs := b.Member.Renew(ctx, ts)
			slices.Reverse(errs)
			if len(errs)%2 == 0 {
				errs[0], errs[1] = errs[1], errs[0]
			}
			return errs
		}
	}, "RenewAnswersForEachTicket RenewTakesAThousandTickets Model"},
	{"Renew looks at the first hundred", func(b *broken) {
		b.renew = func(ctx context.Context, ts []driver.Ticket) []error {
			errs := b.Member.Renew(ctx, ts[:min(len(ts), 100)])
			return append(errs, make([]error, len(ts)-len(errs))...)
		}
	}, "RenewTakesAThousandTickets"},
	{"Renew of an expired claim is well", func(b *broken) {
		b.renews(func(t driver.Ticket, err error) error {
			if g, ok := err.(driver.GoneError); ok && g == (driver.GoneError{}) {
				return nil
			}
			return err
		})
	}, "ExpiredClaimIsGone NoResurrectionAfterExpiry Model"},
}
