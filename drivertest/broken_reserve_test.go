package drivertest

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/record"
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

// records lets f change what a Record is asked.
func (b *broken) records(f func(es []record.Entry, keep *record.Bounds) []record.Entry) {
	b.record = func(ctx context.Context, es []record.Entry, keep record.Bounds) error {
		return b.Member.Record(ctx, f(slices.Clone(es), &keep), keep)
	}
}

var brokenHistories = []breaker{
	{"the oldest come first", func(b *broken) {
		b.history = func(ctx context.Context, key string, n int) ([]record.Entry, error) {
			es, err := b.Member.History(ctx, key, n)
			slices.Reverse(es)
			return es, err
		}
	}, "HistoryIsKept HistoryMerges HistoryIsBoundedByCount"},
	{"an entry replaces what was known of the grant", func(b *broken) {
		b.history = func(ctx context.Context, key string, n int) ([]record.Entry, error) {
			es, err := b.Member.History(ctx, key, n)
			for i := range es {
				if es[i].End == "released" {
					es[i].Owner = ""
				}
			}
			return es, err
		}
	}, "HistoryMerges"},
	{"nothing is forgotten for its number", func(b *broken) {
		b.records(func(es []record.Entry, keep *record.Bounds) []record.Entry {
			keep.Keep = 1000
			return es
		})
	}, "HistoryIsBoundedByCount"},
	{"nothing is forgotten for its age", func(b *broken) {
		b.records(func(es []record.Entry, keep *record.Bounds) []record.Entry {
			keep.For = time.Hour
			return es
		})
	}, "HistoryIsBoundedByAge"},
	{"keys are cut", func(b *broken) {
		b.records(func(es []record.Entry, _ *record.Bounds) []record.Entry {
			for i := range es {
				es[i].Key = es[i].Key[:min(len(es[i].Key), 255)]
			}
			return es
		})
	}, "HistoryHasAnyKey"},
	{"a history is a line", func(b *broken) {
		b.lists(func(_ context.Context, prefix string, yield func(driver.Line, error) bool) {
			if b.count("records", 0) > 0 {
				yield(driver.Line{Key: prefix + "1.", Claims: []driver.Standing{{Claim: driver.Claim{ID: "history"}, Token: 1}}}, nil)
			}
		})
		b.records(func(es []record.Entry, _ *record.Bounds) []record.Entry {
			b.count("records", 1)
			return es
		})
	}, "HistoryIsNoLine"},
}

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
