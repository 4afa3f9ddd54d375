package drivertest

import (
	"context"
	"errors"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/ballot"
)

// forced grants a claim that was refused for its ballot, if f says so, with a ballot above the
// floor, and shows it with the one it asked for.
func (b *broken) forced(f func(c driver.Claim, floor int64) bool) {
	b.enter = func(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
		t, err := b.Member.Enter(ctx, c)
		var floor ballot.Error
		if !errors.As(err, &floor) || !f(c, floor.Last) {
			return t, err
		}
		forced := c
		forced.Ballot = floor.Last + 1
		t, err = b.Member.Enter(ctx, forced)
		t.Claim = c
		if err == nil {
			t.Token = c.Ballot
		}
		return t, err
	}
}

// last is the largest token of key.
func (b *broken) last(key string) int64 {
	l, _ := b.Member.Line(context.Background(), key)
	return l.Last
}

// reenters lets a claim that cannot re-enter enter anew, if f says so.
func (b *broken) reenters(f func(err error) bool) {
	b.again = func(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
		t, err := b.Member.Reenter(ctx, c)
		if err == nil || !f(err) {
			return t, err
		}
		for _, s := range b.standings(c.Key) {
			b.Member.Break(ctx, c.Key, s.Token, driver.Break{})
		}
		sent := c
		sent.ID, sent.Ballot = newID(), 0
		t, err = b.Member.Enter(ctx, sent)
		t.Claim, t.Token = c, c.Ballot
		return t, err
	}
}

var brokenBallots = []breaker{
	{"the ballot is not the token", func(b *broken) {
		plain := func(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
			sent := c
			sent.Ballot = 0
			t, err := b.Member.Enter(ctx, sent)
			t.Claim = c
			return t, err
		}
		b.enter, b.again = plain, plain
	}, "BallotIsTheToken LostClaimReenters"},
	{"any ballot is granted", func(b *broken) { b.forced(func(driver.Claim, int64) bool { return true }) },
		"BallotMustBeAboveTheFloor BallotMustNotBeFarBelowTheClock BallotMustNotBeFarAhead BallotsOfReadersRise " +
			"FloorOutlivesClaims OneOfEqualBallotsWins"},
	{"the floor itself is granted", func(b *broken) {
		b.forced(func(c driver.Claim, _ int64) bool { return c.Ballot == b.last(c.Key) })
	}, "BallotMustBeAboveTheFloor BallotsOfReadersRise OneOfEqualBallotsWins"},
	{"the span is not reserved", func(b *broken) {
		b.sends(func(c *driver.Claim) {
			if c.Ballot != 0 || b.count(c.Key, 0) > 0 {
				b.count(c.Key, 1)
				c.Span = 1
			}
		})
		// A claim without a ballot would draw from the clock, which has moved on.
		b.changed(func(c driver.Claim, t *driver.Ticket) {
			first, ok := b.find(func(t driver.Ticket) bool { return t.Key == c.Key && t.Ballot != 0 })
			if ok && c.Ballot == 0 {
				t.Token = first.Token + 1
			}
		})
	}, "BallotIsTheToken BallotMustBeAboveTheFloor FloorOutlivesClaims"},
	{"a ballot far ahead is granted", func(b *broken) {
		b.forced(func(c driver.Claim, floor int64) bool { return c.Ballot > floor })
	}, "BallotMustNotBeFarAhead"},
	{"ballots climb", func(b *broken) {
		top := map[string]int64{}
		b.forced(func(c driver.Claim, floor int64) bool {
			if last := max(top[c.Key], floor); c.Ballot <= last || c.Ballot > last+ballot.DefaultSkew.Microseconds() {
				return false
			}
			top[c.Key] = c.Ballot
			return true
		})
	}, "BallotsDoNotClimb"},
	{"the answer says the floor", func(b *broken) {
		refusals(b, func(c driver.Claim, _ ballot.Error) error {
			return ballot.Error{Last: max(b.last(c.Key), fromNow(-ballot.DefaultSkew)-1)}
		})
	}, "RefusedBallotLeavesNothing"},
	{"a refused ballot raises the floor", func(b *broken) {
		b.refuses(ballot.Error{Last: 1 << 62}, func(c driver.Claim) bool {
			n := b.count(c.Key, 0)
			if c.Ballot == 1<<62 {
				b.count(c.Key, 1)
			}
			return c.Ballot != 0 && n > 0
		})
	}, "BallotMustNotBeFarAhead"},
	{"a refused ballot stays in line", func(b *broken) {
		refusals(b, func(c driver.Claim, floor ballot.Error) error {
			c.Ballot = 0
			b.Member.Enter(context.Background(), c)
			return floor
		})
	}, "RefusedBallotLeavesNothing"},
	{"the ballot is judged before the id and the line", func(b *broken) {
		b.refuses(ballot.Error{}, func(c driver.Claim) bool {
			return c.Ballot != 0 && c.Ballot <= b.last(c.Key) || c.Ballot == 1
		})
	}, "IdComesBeforeBallot OthersComeBeforeBallot"},
	{"nobody re-enters", func(b *broken) { b.again = b.Member.Enter }, "LostClaimReenters"},
	{"re-entry is judged by the clock", func(b *broken) {
		b.again = func(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
			t, err := b.Member.Enter(ctx, c)
			var floor ballot.Error
			if errors.As(err, &floor) && b.last(c.Key) == c.Ballot+c.Span-1 {
				return b.Member.Reenter(ctx, c)
			}
			return t, err
		}
	}, "LostClaimReenters"},
	{"re-entry lowers the floor", func(b *broken) {
		b.forced(func(c driver.Claim, _ int64) bool { return b.count(c.Key, 0) > 1 })
		b.again = func(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
			b.count(c.Key, 1)
			return b.Member.Reenter(ctx, c)
		}
	}, "LostClaimReenters"},
	{"re-entry ends whoever holds", func(b *broken) {
		b.reenters(func(err error) bool { return errors.As(err, new(*driver.BusyError)) })
	}, "ReentryDisturbsNobody"},
	{"re-entry ignores later tokens", func(b *broken) {
		b.reenters(func(err error) bool { return errors.As(err, new(ballot.Error)) })
	}, "ReentryDisturbsNobody EqualBallotReentersAlone"},
	{"re-entry ignores tombstones", func(b *broken) { b.reenters(driver.Gone) }, "ReentryDisturbsNobody"},
	{"Initialise forgets everything", func(b *broken) {
		b.init = func(ctx context.Context) error {
			b.Member.Flush()
			return b.Member.Initialise(ctx)
		}
	}, "InitialiseForgetsNothing"},
	{"a new store takes part at once", func(b *broken) { b.Member.Initialise(context.Background()) },
		"NewStoreIsInQuarantine"},
}
