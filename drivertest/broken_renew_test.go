package drivertest

import (
	"context"
	"slices"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/driverutil"
)

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
