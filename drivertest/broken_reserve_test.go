package drivertest

import (
	"context"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/driverutil"
)

var brokenReserves = []breaker{
	{"a Reserve says that it is done and does nothing", func(b *broken) {
		b.reserve = func(context.Context, driver.Ticket, int64) (bool, error) { return true, nil }
	}, "ReservedTokensAreTheClaims ReserveShortensNothing ReserveIsForWhoIsAlone ReserveTakesNoTokenThatWasDrawn " +
		"ReserveForAClaimThatIsGone ReserveStartsNoLease Model"},
	{"a Reserve does nothing, as it may, and the claim has left", func(b *broken) {
		b.reserve = func(ctx context.Context, t driver.Ticket, _ int64) (bool, error) {
			_ = b.Member.Leave(ctx, t, driver.Exit{})
			return false, nil
		}
	}, "ReservedTokensAreTheClaims ReserveShortensNothing ReserveIsForWhoIsAlone ReserveTakesNoTokenThatWasDrawn " +
		"ReserveStartsNoLease Model"},
	{"a Reserve that comes late shortens the span", func(b *broken) {
		next := map[string]int64{}
		b.reserve = func(ctx context.Context, t driver.Ticket, span int64) (bool, error) {
			done, err := b.Member.Reserve(ctx, t, span)
			if done {
				b.mu.Lock()
				defer b.mu.Unlock()
				next[t.Key] = t.Token + span
			}
			return done, err
		}
		b.enter = func(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
			t, err := b.Member.Enter(ctx, c)
			b.mu.Lock()
			defer b.mu.Unlock()
			if token := next[c.Key]; token != 0 && err == nil {
				t.Token = token
			}
			return t, err
		}
	}, "ReserveShortensNothing Model"},
	{"a Reserve lets nobody else in", func(b *broken) {
		b.reserve = func(ctx context.Context, t driver.Ticket, span int64) (bool, error) {
			if len(b.standings(t.Key)) > 1 {
				return true, nil
			}
			return b.Member.Reserve(ctx, t, span)
		}
	}, "ReserveIsForWhoIsAlone Model"},
	{"a Reserve takes tokens that were drawn", func(b *broken) {
		b.reserve = func(ctx context.Context, t driver.Ticket, span int64) (bool, error) {
			done, err := b.Member.Reserve(ctx, t, span)
			alone := len(b.standings(t.Key)) == 1 && b.standings(t.Key)[0].ID == driverutil.ShortID(t.ID)
			return done || alone, err
		}
	}, "ReserveTakesNoTokenThatWasDrawn Model"},
	{"a Reserve starts the lease again", func(b *broken) {
		b.reserve = func(ctx context.Context, t driver.Ticket, span int64) (bool, error) {
			done, err := b.Member.Reserve(ctx, t, span)
			b.Member.Renew(ctx, []driver.Ticket{t})
			return done, err
		}
	}, "ReserveStartsNoLease Model"},
	{"a Reserve brings in again what is gone", func(b *broken) {
		b.reserve = func(ctx context.Context, t driver.Ticket, span int64) (bool, error) {
			done, err := b.Member.Reserve(ctx, t, span)
			if !done && err == nil && len(b.standings(t.Key)) == 0 {
				_, err := b.Member.Enter(ctx, t.Claim)
				return err == nil, nil
			}
			return done, err
		}
	}, "ReserveForAClaimThatIsGone ReserveStartsNoLease Model"},
}
