package drivertest

import (
	"context"
	"errors"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// forced lets f, which gets a claim that was refused for its ballot and the floor,
// choose another ballot for it, and shows the claim with the one it asked for.
func (b *broken) forced(f func(c driver.Claim, floor int64) int64) {
	b.enter = func(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
		t, err := b.Store.Enter(ctx, c)
		var floor driver.ErrBallot
		if !errors.As(err, &floor) {
			return t, err
		}
		forced := c
		if forced.Ballot = f(c, floor.Last); forced.Ballot == 0 {
			return t, err
		}
		t, err = b.Store.Enter(ctx, forced)
		t.Claim = c
		if err == nil {
			t.Token = c.Ballot
		}
		return t, err
	}
}

// first answers before the Store has looked at anything.
func (b *broken) first(f func(c driver.Claim) error) {
	b.enter = func(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
		if c.Ballot != 0 {
			if err := f(c); err != nil {
				return driver.Ticket{}, err
			}
		}
		return b.Store.Enter(ctx, c)
	}
}

// reenters lets a claim that cannot re-enter enter anew, if f says so.
func (b *broken) reenters(f func(err error) bool) {
	b.again = func(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
		t, err := b.Store.Reenter(ctx, c)
		if err == nil || !f(err) {
			return t, err
		}
		l, _ := b.Store.Line(ctx, c.Key)
		for _, s := range l.Claims {
			b.Store.Break(ctx, c.Key, s.Token, "")
		}
		sent := c
		sent.ID, sent.Ballot = newID(), 0
		t, err = b.Store.Enter(ctx, sent)
		t.Claim, t.Token = c, c.Ballot
		return t, err
	}
}

var brokenBallots = []breaker{
	{"the ballot is not the token", func(b *broken) {
		plain := func(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
			sent := c
			sent.Ballot = 0
			t, err := b.Store.Enter(ctx, sent)
			t.Claim = c
			return t, err
		}
		b.enter, b.again = plain, plain
	}, "BallotIsTheToken LostClaimReenters"},
	{"any ballot is granted", func(b *broken) { b.forced(func(c driver.Claim, floor int64) int64 { return floor + 1 }) },
		"BallotMustBeAboveTheFloor BallotMustNotBeFarBelowTheClock BallotMustNotBeFarAhead BallotsOfReadersRise " +
			"FloorOutlivesClaims OneOfEqualBallotsWins"},
	{"the floor itself is granted", func(b *broken) {
		b.forced(func(c driver.Claim, floor int64) int64 {
			if l, _ := b.Store.Line(context.Background(), c.Key); c.Ballot == l.Last {
				return floor + 1
			}
			return 0
		})
	}, "BallotMustBeAboveTheFloor BallotsOfReadersRise OneOfEqualBallotsWins"},
	{"the span is not reserved", func(b *broken) {
		b.sends(func(c *driver.Claim) {
			if c.Ballot != 0 || b.count(c.Key, 0) > 0 {
				b.count(c.Key, 1)
				c.Span = 1
			}
		})
		// A claim without a ballot would draw from the clock, which has moved on.
		sent := b.enter
		b.enter = func(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
			t, err := sent(ctx, c)
			if err == nil && c.Ballot == 0 {
				if first, ok := b.find(func(t driver.Ticket) bool { return t.Key == c.Key && t.Ballot != 0 }); ok {
					t.Token = first.Token + 1
				}
			}
			return t, err
		}
	}, "BallotIsTheToken BallotMustBeAboveTheFloor FloorOutlivesClaims"},
	{"a ballot far ahead is granted", func(b *broken) {
		b.forced(func(c driver.Claim, floor int64) int64 {
			if c.Ballot > floor {
				return floor + 1
			}
			return 0
		})
	}, "BallotMustNotBeFarAhead"},
	{"ballots climb", func(b *broken) {
		top := map[string]int64{}
		b.forced(func(c driver.Claim, floor int64) int64 {
			if last := max(top[c.Key], floor); c.Ballot <= last || c.Ballot > last+driver.DefaultSkew.Microseconds() {
				return 0
			}
			top[c.Key] = c.Ballot
			return floor + 1
		})
	}, "BallotsDoNotClimb"},
	{"the answer says the floor", func(b *broken) {
		enter := b.Store.Enter
		b.enter = func(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
			t, err := enter(ctx, c)
			if errors.As(err, new(driver.ErrBallot)) {
				l, _ := b.Store.Line(ctx, c.Key)
				err = driver.ErrBallot{Last: max(l.Last, time.Now().Add(-driver.DefaultSkew).UnixMicro()-1)}
			}
			return t, err
		}
	}, "RefusedBallotLeavesNothing"},
	{"a refused ballot raises the floor", func(b *broken) {
		b.first(func(c driver.Claim) error {
			n := b.count(c.Key, 0)
			if c.Ballot == 1<<62 {
				b.count(c.Key, 1)
			}
			if n > 0 {
				return driver.ErrBallot{Last: 1 << 62}
			}
			return nil
		})
	}, "BallotMustNotBeFarAhead"},
	{"a refused ballot stays in line", func(b *broken) {
		b.enter = func(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
			t, err := b.Store.Enter(ctx, c)
			if errors.As(err, new(driver.ErrBallot)) {
				c.Ballot = 0
				b.Store.Enter(ctx, c)
			}
			return t, err
		}
	}, "RefusedBallotLeavesNothing"},
	{"the ballot is judged before the id and the line", func(b *broken) {
		b.first(func(c driver.Claim) error {
			l, _ := b.Store.Line(context.Background(), c.Key)
			if c.Ballot <= l.Last || c.Ballot == 1 {
				return driver.ErrBallot{Last: l.Last}
			}
			return nil
		})
	}, "IdComesBeforeBallot OthersComeBeforeBallot"},
	{"nobody re-enters", func(b *broken) { b.again = b.Store.Enter }, "LostClaimReenters"},
	{"re-entry is judged by the clock", func(b *broken) {
		b.again = func(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
			t, err := b.Store.Enter(ctx, c)
			var floor driver.ErrBallot
			if l, _ := b.Store.Line(ctx, c.Key); errors.As(err, &floor) && l.Last == c.Ballot+c.Span-1 {
				return b.Store.Reenter(ctx, c)
			}
			return t, err
		}
	}, "LostClaimReenters"},
	{"re-entry lowers the floor", func(b *broken) {
		b.forced(func(c driver.Claim, floor int64) int64 {
			if b.count(c.Key, 0) > 1 {
				return floor + 1
			}
			return 0
		})
		b.again = func(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
			b.count(c.Key, 1)
			return b.Store.Reenter(ctx, c)
		}
	}, "LostClaimReenters"},
	{"re-entry ends whoever holds", func(b *broken) { b.reenters(func(err error) bool { return errors.As(err, new(*driver.BusyError)) }) },
		"ReentryDisturbsNobody"},
	{"re-entry ignores later tokens", func(b *broken) {
		b.reenters(func(err error) bool { return errors.As(err, new(driver.ErrBallot)) })
	}, "ReentryDisturbsNobody EqualBallotReentersAlone"},
	{"re-entry ignores tombstones", func(b *broken) { b.reenters(driver.Gone) }, "ReentryDisturbsNobody"},
	{"Initialise forgets everything", func(b *broken) {
		b.init = func(ctx context.Context) error {
			b.Store.Flush()
			return b.Store.Initialise(ctx)
		}
	}, "InitialiseForgetsNothing"},
	{"a new store takes part at once", func(b *broken) { b.Store.Initialise(context.Background()) },
		"NewStoreIsInQuarantine"},
	{"a new store lets claims re-enter", func(b *broken) {
		b.reenters(func(err error) bool { return errors.As(err, new(*driver.QuarantineError)) })
	}, "NewStoreIsInQuarantine"},
}
