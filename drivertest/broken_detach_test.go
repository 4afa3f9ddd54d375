package drivertest

import (
	"context"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/driverutil"
)

// adopts lets f change what an Adopt is asked, and the answer.
func (b *broken) adopts(f func(t *driver.Ticket, by *driver.Claim) (after func(got *driver.Ticket, err *error))) {
	b.adopt = func(ctx context.Context, t driver.Ticket, by driver.Claim) (driver.Ticket, error) {
		after := f(&t, &by)
		got, err := b.Member.Adopt(ctx, t, by)
		if after != nil {
			after(&got, &err)
		}
		return got, err
	}
}

var brokenDetaches = []breaker{
	{"an adopted claim keeps what it carries", func(b *broken) {
		b.adopts(func(t *driver.Ticket, by *driver.Claim) func(*driver.Ticket, *error) {
			asked := *by
			by.Owner, by.Note, by.Trace, by.LockDelay = t.Owner, t.Note, t.Trace, t.LockDelay
			return func(got *driver.Ticket, _ *error) {
				got.Owner, got.Note, got.Trace, got.LockDelay = asked.Owner, asked.Note, asked.Trace, asked.LockDelay
			}
		})
	}, "AdoptedClaimGoesOn"},
	{"Adopt keeps the old ID alive", func(b *broken) {
		b.adopt = func(ctx context.Context, t driver.Ticket, by driver.Claim) (driver.Ticket, error) {
			if err := b.Member.Renew(ctx, []driver.Ticket{t})[0]; err != nil {
				return driver.Ticket{}, err
			}
			t.ID, t.Owner, t.Note, t.Named = by.ID, by.Owner, by.Note, false
			return t, nil
		}
	}, "AdoptedClaimGoesOn OldIDIsGoneAtOnce AdoptIsForOne AdoptedInItsPlace AdoptStartsTheLease OnlyHoldersAreAdopted " +
		"HolderTakesItsOwnBack"},
	{"a repeated Adopt finds nothing", func(b *broken) {
		b.adopts(func(t *driver.Ticket, by *driver.Claim) func(*driver.Ticket, *error) {
			if b.count(by.ID, 1) == 1 {
				return nil
			}
			return func(_ *driver.Ticket, err *error) { *err = driverutil.Adopted }
		})
	}, "AdoptIsForOne"},
	{"an adopted claim goes to the end of the line", func(b *broken) {
		b.adopt = func(ctx context.Context, t driver.Ticket, by driver.Claim) (driver.Ticket, error) {
			if err := b.Member.Leave(ctx, t, driver.Exit{}); err != nil {
				return driver.Ticket{}, err
			}
			got, err := b.Member.Enter(ctx, by)
			got.Token, got.Granted = t.Token, true
			return got, err
		}
	}, "AdoptedClaimGoesOn OldIDIsGoneAtOnce AdoptIsForOne AdoptedInItsPlace OnlyHoldersAreAdopted"},
	{"a detached claim stays forever", func(b *broken) {
		b.detach = func(ctx context.Context, t driver.Ticket) error {
			t.TTL = time.Hour
			return b.Member.Detach(ctx, t)
		}
	}, "DetachedEndsWithItsLease"},
	{"a detached claim ends with its process", func(b *broken) {
		b.close = func() error {
			b.Member.Flush()
			return nil
		}
	}, "DetachedOutlivesItsProcess"},
	{"a detached claim is not renewed by others", func(b *broken) {
		b.renew = func(ctx context.Context, ts []driver.Ticket) []error {
			errs := make([]error, len(ts))
			for i, t := range ts {
				if !t.Named {
					errs[i] = b.Member.Renew(ctx, ts[i:i+1])[0]
				}
			}
			return errs
		}
	}, "OldIDIsGoneAtOnce DetachedByItsHandle"},
	{"Adopt does not start the lease", func(b *broken) {
		b.adopts(func(t *driver.Ticket, by *driver.Claim) func(*driver.Ticket, *error) {
			by.TTL = 1
			return func(got *driver.Ticket, _ *error) { got.TTL = t.TTL }
		})
	}, "AdoptStartsTheLease"},
	{"a claim that waits can be adopted", func(b *broken) {
		b.adopt = func(ctx context.Context, t driver.Ticket, by driver.Claim) (driver.Ticket, error) {
			got, err := b.Member.Adopt(ctx, t, by)
			if driver.Gone(err) && b.Member.Renew(ctx, []driver.Ticket{t})[0] == nil {
				return t, nil
			}
			return got, err
		}
	}, "OnlyHoldersAreAdopted"},
	{"a claim leaves only for whoever got the answer to its Adopt", func(b *broken) {
		b.leave = func(ctx context.Context, t driver.Ticket, e driver.Exit) error {
			if _, entered := b.known(t.Key, t.ID); !entered && !t.Granted && t.Token > 0 {
				return driver.GoneError{}
			}
			return b.Member.Leave(ctx, t, e)
		}
	}, "AdoptWithoutAnAnswerIsUndone"},
	{"a broken claim can be adopted", func(b *broken) {
		b.adopt = func(ctx context.Context, t driver.Ticket, by driver.Claim) (driver.Ticket, error) {
			got, err := b.Member.Adopt(ctx, t, by)
			if driver.Gone(err) && err.Error() == "the claim was broken: stuck" {
				return b.Member.Enter(ctx, by)
			}
			return got, err
		}
	}, "BrokenIsNotAdopted"},
}

var brokenNames = []breaker{
	{"a named claim that enters again goes to the end of the line", func(b *broken) {
		b.enter = func(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
			if t, again := b.known(c.Key, c.ID); again && c.Named {
				_ = b.Member.Leave(ctx, t, driver.Exit{})
			}
			return b.Member.Enter(ctx, c)
		}
	}, "NamedClaimKeepsItsPlace NamedGrantIsFoundAgain"},
	{"a named claim is woken where it entered first", func(b *broken) {
		b.await = func(ctx context.Context, t driver.Ticket) (driver.Ticket, error) {
			if t.Named {
				<-ctx.Done()
				return t, ctx.Err()
			}
			return b.Member.Await(ctx, t)
		}
	}, "NamedClaimIsWokenWhereItWaits"},
	{"a named claim ends with its process", func(b *broken) {
		b.close = func() error {
			b.Member.Flush()
			return nil
		}
	}, "NamedClaimOutlivesItsProcess"},
	{"a named claim is renewed with the others of its process", func(b *broken) {
		b.renew = func(ctx context.Context, ts []driver.Ticket) []error {
			if t, found := b.find(func(t driver.Ticket) bool { return t.Named }); found {
				b.Member.Renew(ctx, []driver.Ticket{t})
			}
			return b.Member.Renew(ctx, ts)
		}
	}, "NamedClaimEndsWithItsLease"},
	{"a named claim can be entered after its end", func(b *broken) {
		b.enter = func(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
			t, err := b.Member.Enter(ctx, c)
			if driver.Gone(err) && c.Named {
				c.ID += "2"
				return b.Member.Enter(ctx, c)
			}
			return t, err
		}
	}, "NamedEnterAfterItsEnd"},
}
