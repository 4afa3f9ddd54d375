package drivertest

import (
	"context"
	"errors"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/driverutil"
)

const (
	reusedLawNames = "ReusedIDIsRefused ReusedIDOfAnotherSizeIsRefused ReusedNameIsRefused ReusedNameOfAnotherSizeIsRefused"
	waitReusedLaws = " ReusedIDLeavesTheWaiterInLine ReusedNameLeavesTheWaiterInLine"
)

// whenReused has f answer an Enter that is refused with ErrReused. t is the claim that has the ID.
func (b *broken) whenReused(f func(ctx context.Context, c driver.Claim, t driver.Ticket, err error) (driver.Ticket, error)) {
	b.enter = func(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
		got, err := b.Member.Enter(ctx, c)
		if errors.Is(err, driver.ErrReused) {
			t, _ := b.known(c.Key, c.ID)
			return f(ctx, c, t, err)
		}
		return got, err
	}
}

var brokenReuses = []breaker{
	{"an ID alone finds its claim", func(b *broken) {
		b.whenReused(func(ctx context.Context, c driver.Claim, t driver.Ticket, _ error) (driver.Ticket, error) {
			c.Capacity, c.Weight = t.Capacity, t.Weight
			return b.Member.Enter(ctx, c)
		})
	}, reusedLawNames + waitReusedLaws + " ReusedIDDoesNotRenew"},
	{"one ID is two claims", func(b *broken) {
		b.whenReused(func(ctx context.Context, c driver.Claim, _ driver.Ticket, _ error) (driver.Ticket, error) {
			c.ID += "2"
			return b.Member.Enter(ctx, c)
		})
	}, reusedLawNames + waitReusedLaws},
	{"a reused ID renews", func(b *broken) {
		b.whenReused(func(ctx context.Context, _ driver.Claim, t driver.Ticket, err error) (driver.Ticket, error) {
			b.Member.Renew(ctx, []driver.Ticket{t})
			return driver.Ticket{}, err
		})
	}, "ReusedIDDoesNotRenew"},
	{"a repeated Enter changes the note", func(b *broken) {
		notes := map[string]string{}
		b.changed(func(c driver.Claim, _ *driver.Ticket) { notes[driverutil.ShortID(c.ID)] = c.Note })
		b.shows(func(s *driver.Standing) { s.Note = notes[s.ID] })
	}, "RepeatedNameKeepsItsText"},
	{"a repeated Enter changes the lock-delay", func(b *broken) {
		delays := map[string]time.Duration{}
		b.changed(func(c driver.Claim, _ *driver.Ticket) { delays[driverutil.ShortID(c.ID)] = c.LockDelay })
		b.shows(func(s *driver.Standing) { s.LockDelay = delays[s.ID] })
	}, "RepeatedNameKeepsItsText AdoptedClaimGoesOn"},
	{"a reused ID ends its claim", func(b *broken) {
		b.whenReused(func(ctx context.Context, _ driver.Claim, t driver.Ticket, err error) (driver.Ticket, error) {
			_ = b.Member.Leave(ctx, t, driver.Exit{})
			return driver.Ticket{}, err
		})
	}, reusedLawNames + waitReusedLaws},
}
