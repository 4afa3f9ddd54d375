// Package ballot is the contract between a quorum (package quorumlock) and its members. A claim
// that a quorum sends to its members has a driver.Claim.Ballot, the token that it must get.
package ballot

import (
	"context"
	"fmt"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// Member is optional: a backend that takes ballots, so that several of them can be the nodes
// of a quorum (package quorumlock). Its laws are tests of package
// drivertest, in the topic Ballot:
//
//   - Ballot: Enter with a Ballot grants the claim that very token, or returns
//     Error. It refuses ballots that are not above its floor, max(last, now −
//     Skew), and ballots above both now + Skew and last + 65535. A refused ballot
//     changes nothing.
//   - Last: Error says max(last, now). One more than the largest answer of any
//     node is a ballot that all nodes take, for as long as Skew. One more than the
//     floor would be below the clock again when the next ballot arrives.
//   - Order of judging: the claim with that ID first, whatever the ballot says; then
//     whether the ID has a tombstone, the kind, and whether the line is free; then
//     the quarantine; the ballot last.
//   - Floor: last becomes ballot + Span − 1, and never goes down. The upper limit is
//     for a node that loses its memory: its clock says that it granted no ballot
//     above now + Skew. With last + Skew as the limit, clients whose clocks are each
//     further ahead could push the ballots up without end.
//   - Quarantine: a store that is new or has lost its data returns a *QuarantineError
//     to every ballot until MaxTTL has passed since it noticed. By then all leases
//     that it may have forgotten are over, and all tokens that it may have forgotten
//     are below its floor. Durable excepts a restart that loses nothing. A store that
//     measures the quarantine by its wall clock counts from a ballot within Skew of it:
//     that clock may be wrong when a machine boots, and stepped later.
type Member interface {
	driver.Backend

	// IsMember reports whether the backend was opened to take ballots. If not, a claim with a
	// ballot is an ErrPermanent.
	IsMember() bool

	// Reenter puts back a claim that this node has lost, with the token c.Ballot that
	// the claim has on the others. The caller has just seen a majority keep the claim.
	// Reenter differs from Enter in the ballot: an old claim's ballot may be far below
	// the clock. The ballot must be above every token that the node remembers for the
	// key, or the last token that it drew, with no claim in line. Otherwise it returns a
	// Error. The quarantine applies.
	Reenter(ctx context.Context, c driver.Claim) (driver.Ticket, error)

	// Initialise ends the quarantine. The caller knows that no claim and no token is
	// left from before: all nodes of the quorum are new.
	Initialise(ctx context.Context) error
}

// The defaults of Membership.
const (
	DefaultSkew   = time.Minute
	DefaultMaxTTL = 5 * time.Minute
)

// Membership opens a backend as a member. All programs of one quorum give all nodes
// the same Membership. A node remembers it and refuses another.
type Membership struct {
	// Skew is how far the clocks of any two nodes may be apart; 0 is DefaultSkew. At
	// most 15 minutes.
	Skew time.Duration
	// MaxTTL is the longest lease, and how long the quarantine lasts. It is more than
	// twice Skew; 0 is DefaultMaxTTL, or more if Skew needs it.
	MaxTTL time.Duration
	// Durable says that the node's store keeps all that it has acknowledged when the
	// store or its machine is killed. Then no quarantine follows a restart. (Redis:
	// appendonly yes with appendfsync always, and no replicas: a replica that takes the
	// place of its master may lag behind, and a quarantine follows.)
	Durable bool
}

// Settled returns m with its defaults, or an error if its values contradict each other.
func (m Membership) Settled() (Membership, error) {
	if m.Skew == 0 {
		m.Skew = DefaultSkew
	}
	if m.MaxTTL == 0 {
		m.MaxTTL = max(DefaultMaxTTL, 2*m.Skew+time.Minute)
	}
	switch {
	case m.Skew < time.Millisecond || m.Skew > 15*time.Minute:
		return m, fmt.Errorf("the Skew of a member is %v; want 1ms to 15m", m.Skew)
	case m.MaxTTL <= 2*m.Skew:
		return m, fmt.Errorf("the MaxTTL of a member is %v; want more than twice its Skew of %v", m.MaxTTL, m.Skew)
	case m.MaxTTL > 366*24*time.Hour:
		return m, fmt.Errorf("the MaxTTL of a member is %v; want at most 8784h", m.MaxTTL)
	}
	m.Skew, m.MaxTTL = m.Skew.Truncate(time.Microsecond), m.MaxTTL.Truncate(time.Microsecond)
	return m, nil
}

// String writes m as a node remembers it.
func (m Membership) String() string {
	durable := ""
	if m.Durable {
		durable = " durable"
	}
	return fmt.Sprintf("skew %v maxttl %v%s", m.Skew, m.MaxTTL, durable)
}

// QuarantineError says that a member takes no ballots yet.
type QuarantineError struct {
	Left time.Duration // until it does
}

func (e *QuarantineError) Error() string {
	left := e.Left.Round(time.Millisecond)
	if left > 10*time.Second {
		left = left.Round(time.Second)
	}
	return fmt.Sprintf("it is new, or has lost its data or been restarted, and grants no lock for another %v. "+
		"If no lock can be left from before, end that with fencelock init, or with Initialise in a program", left)
}

// Error says that a ballot was not above the floor, or too far ahead.
type Error struct{ Last int64 }

func (e Error) Error() string {
	return fmt.Sprintf("the ballot is outside what this node grants after %d", e.Last)
}
