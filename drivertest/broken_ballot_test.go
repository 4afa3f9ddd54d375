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
	{"the ballot is not the token", "BallotIsTheToken LostClaimReenters",
		func(b *broken) {
			plain := func(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
				sent := c
				sent.Ballot = 0
				t, err := b.Store.Enter(ctx, sent)
				t.Claim = c
				return t, err
			}
			b.enter, b.again = plain, plain
		}},
	{"any ballot is granted",
		"BallotMustBeAboveTheFloor BallotMustNotBeFarBelowTheClock BallotMustNotBeFarAhead " +
			"BallotsOfReadersRise FloorOutlivesClaims OneOfEqualBallotsWins",
		func(b *broken) { b.forced(func(c driver.Claim, floor int64) int64 { return floor + 1 }) }},
	{"the floor itself is granted", "BallotMustBeAboveTheFloor BallotsOfReadersRise OneOfEqualBallotsWins",
		func(b *broken) {
			b.forced(func(c driver.Claim, floor int64) int64 {
				if l, _ := b.Store.Line(context.Background(), c.Key); c.Ballot == l.Last {
					return floor + 1
				}
				return 0
			})
		}},
	{"the span is not reserved", "BallotIsTheToken BallotMustBeAboveTheFloor FloorOutlivesClaims",
		func(b *broken) {
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
		}},
	{"a ballot far ahead is granted", "BallotMustNotBeFarAhead",
		func(b *broken) {
			b.forced(func(c driver.Claim, floor int64) int64 {
				if c.Ballot > floor {
					return floor + 1
				}
				return 0
			})
		}},
	{"ballots climb", "BallotsDoNotClimb",
		func(b *broken) {
			top := map[string]int64{}
			b.forced(func(c driver.Claim, floor int64) int64 {
				if last := max(top[c.Key], floor); c.Ballot <= last || c.Ballot > last+driver.DefaultSkew.Microseconds() {
					return 0
				}
				top[c.Key] = c.Ballot
				return floor + 1
			})
		}},
	{"the answer says the floor", "RefusedBallotLeavesNothing",
		func(b *broken) {
			enter := b.Store.Enter
			b.enter = func(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
				t, err := enter(ctx, c)
				if errors.As(err, new(driver.ErrBallot)) {
					l, _ := b.Store.Line(ctx, c.Key)
					err = driver.ErrBallot{Last: max(l.Last, time.Now().Add(-driver.DefaultSkew).UnixMicro()-1)}
				}
				return t, err
			}
		}},
	{"a refused ballot raises the floor", "BallotMustNotBeFarAhead",
		func(b *broken) {
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
		}},
	{"a refused ballot stays in line", "RefusedBallotLeavesNothing",
		func(b *broken) {
			b.enter = func(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
				t, err := b.Store.Enter(ctx, c)
				if errors.As(err, new(driver.ErrBallot)) {
					c.Ballot = 0
					b.Store.Enter(ctx, c)
				}
				return t, err
			}
		}},
	{"the ballot is judged before the id and the line", "IdComesBeforeBallot OthersComeBeforeBallot",
		func(b *broken) {
			b.first(func(c driver.Claim) error {
				l, _ := b.Store.Line(context.Background(), c.Key)
				if c.Ballot <= l.Last || c.Ballot == 1 {
					return driver.ErrBallot{Last: l.Last}
				}
				return nil
			})
		}},
	{"nobody re-enters", "LostClaimReenters",
		func(b *broken) { b.again = b.Store.Enter }},
	{"re-entry is judged by the clock", "LostClaimReenters",
		func(b *broken) {
			b.again = func(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
				t, err := b.Store.Enter(ctx, c)
				var floor driver.ErrBallot
				if l, _ := b.Store.Line(ctx, c.Key); errors.As(err, &floor) && l.Last == c.Ballot+c.Span-1 {
					return b.Store.Reenter(ctx, c)
				}
				return t, err
			}
		}},
	{"re-entry lowers the floor", "LostClaimReenters",
		func(b *broken) {
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
		}},
	{"re-entry ends whoever holds", "ReentryDisturbsNobody",
		func(b *broken) { b.reenters(func(err error) bool { return errors.As(err, new(*driver.BusyError)) }) }},
	{"re-entry ignores later tokens", "ReentryDisturbsNobody EqualBallotReentersAlone",
		func(b *broken) {
			b.reenters(func(err error) bool { return errors.As(err, new(driver.ErrBallot)) })
		}},
	{"re-entry ignores tombstones", "ReentryDisturbsNobody",
		func(b *broken) { b.reenters(driver.Gone) }},
	{"Initialise forgets everything", "InitialiseForgetsNothing",
		func(b *broken) {
			b.init = func(ctx context.Context) error {
				b.Store.Flush()
				return b.Store.Initialise(ctx)
			}
		}},
	{"a new store takes part at once", "NewStoreIsInQuarantine",
		func(b *broken) { b.Store.Initialise(context.Background()) }},
	{"a new store lets claims re-enter", "NewStoreIsInQuarantine",
		func(b *broken) {
			b.reenters(func(err error) bool { return errors.As(err, new(*driver.QuarantineError)) })
		}},
}
