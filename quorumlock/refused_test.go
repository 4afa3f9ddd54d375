package quorumlock_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/ballot"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testmember"
	"github.com/fencelock/fencelock/quorumlock"
)

// failing is a member that answers each Enter with err, if that is set.
type failing struct {
	*testmember.Member
	err error
}

func (f *failing) Enter(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
	if f.err != nil {
		return driver.Ticket{}, f.err
	}
	return f.Member.Enter(ctx, c)
}

// A quorum has refused, and done nothing, if too few members are left that may have the claim. A
// member that did not answer may have it.
func TestQuorumKnowsWhenNothingHappened(t *testing.T) {
	now, good := driver.Refused(errors.New("read-only")), driver.Permanent(errors.New("no right"))
	silent := errors.New("connection refused")
	for name, tt := range map[string]struct {
		errs             [3]error
		refused, forGood bool
	}{
		"no quorum yet":               {[3]error{&ballot.QuarantineError{}, &ballot.QuarantineError{}, &ballot.QuarantineError{}}, true, false},
		"all refuse":                  {[3]error{now, now, now}, true, false},
		"two refuse, one has it":      {[3]error{now, now, nil}, true, false},
		"two refuse, one is silent":   {[3]error{now, now, silent}, true, false},
		"one refuses, two are silent": {[3]error{now, silent, silent}, false, false},
		"one has it, two are silent":  {[3]error{nil, silent, silent}, false, false},
		"one refuses, one each":       {[3]error{now, silent, nil}, false, false},
		"all refuse for good":         {[3]error{good, good, good}, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			members := make([]driver.Backend, 3)
			for i, s := range stores(t, 3) {
				members[i] = &failing{s, tt.errs[i]}
			}
			b := quorumlock.New(members, nil)
			t.Cleanup(func() { steps.Must(t, b.Close()) })
			_, err := b.Enter(t.Context(), driver.Claim{
				Key: "k", ID: "0123456789abcdef0123456789", Owner: "o", Capacity: driver.RW, Weight: driver.RW, Span: 1,
				TTL: 5e9, NoWait: true,
			})
			if err == nil || errors.Is(err, driver.ErrRefused) != tt.refused ||
				errors.Is(err, driver.ErrPermanent) != tt.forGood {
				t.Errorf("Enter answered %v; want refused %v, for good %v", err, tt.refused, tt.forGood)
			}
		})
	}
}

// refusesLeave is a member that refuses some Leaves, as a server that has become read-only does.
type refusesLeave struct {
	*testmember.Member
	left atomic.Int32 // how many it refuses yet
}

func (r *refusesLeave) Leave(ctx context.Context, t driver.Ticket, e driver.Exit) error {
	if r.left.Add(-1) >= 0 {
		return driver.Refused(errors.New("read-only"))
	}
	return r.Member.Leave(ctx, t, e)
}

// A member that refuses a Leave for now still has the claim, so it is asked again.
func TestLeaveThatAMemberRefusesIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		members := make([]driver.Backend, 3)
		var refuses []*refusesLeave
		for i, s := range stores(t, 3) {
			r := &refusesLeave{Member: s}
			refuses, members[i] = append(refuses, r), r
		}
		b := quorumlock.New(members, nil)
		held, err := b.Enter(t.Context(), driver.Claim{
			Key: "k", ID: "0123456789abcdef0123456789", Owner: "o", Capacity: driver.RW, Weight: driver.RW, Span: 1,
			TTL: time.Minute, NoWait: true,
		})
		steps.Must(t, err)
		for _, r := range refuses {
			r.left.Store(2)
		}
		_ = b.Leave(t.Context(), held, driver.Exit{})
		time.Sleep(30 * time.Second) // half of the lease
		for _, r := range refuses {
			l, err := r.Line(t.Context(), "k")
			steps.Must(t, err)
			if len(l.Claims) != 0 {
				t.Errorf("a member still has %+v", l.Claims)
			}
		}
		steps.Must(t, b.Close())
	})
}
