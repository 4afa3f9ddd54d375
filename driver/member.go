package driver

import (
	"context"
	"fmt"
	"time"
)

// Member is what a backend with Info.Ballot has besides, so that several of them
// can be the nodes of a quorum (package quorumlock). Its laws are tests of package
// drivertest, in the topic Ballot:
//
//   - Ballot: Enter with a Ballot grants the claim that very token, or answers
//     ErrBallot. It refuses ballots that are not above its floor, max(last, now −
//     Skew), and ballots above both now + Skew and last + MaxSpan. A refused ballot
//     changes nothing.
//   - Last: ErrBallot says max(last, now). One more than the largest that any node has
//     said is a ballot for all of them, for as long as Skew: the floor itself would
//     be below the clock again by the time that the next ballot comes.
//   - Order of judging: the claim with that ID first, whatever the ballot says; then
//     whether the ID was laid to rest, the kind, and whether the line is free; then
//     the quarantine; the ballot last.
//   - Floor: last becomes ballot + Span − 1, and never goes down. Two-sided, because
//     a node that loses its memory must be able to tell by its clock which ballots
//     it may have granted before: none above its clock by more than Skew. (Were last +
//     Skew the limit, clients whose clocks are further and further ahead could climb
//     on one another's ballots.)
//   - Quarantine: a store that does not remember to have been a member, because it
//     is new or has lost its data, answers a *QuarantineError to every ballot until
//     MaxTTL has passed since it noticed. By then all leases that it may have
//     forgotten are over, and all tokens that it may have forgotten are below its
//     floor. It may have been restarted without losing anything: see Durable.
type Member interface {
	Backend

	// Reenter puts a claim back that this node has lost, with the token c.Ballot that
	// it has on the others. The caller has just seen a majority of the nodes keep it.
	// It is Enter but for the ballot: that may be far below the clock, for the claim
	// may be old. It must be above every token that the node remembers for the key, or
	// be the very last one that it drew, with nobody in line; otherwise the answer is
	// ErrBallot. The quarantine holds for it as well.
	Reenter(ctx context.Context, c Claim) (Ticket, error)

	// Initialise ends the quarantine: whoever calls it knows that no claim and no
	// token can be left from before. It is for nodes that are new, all at once.
	Initialise(ctx context.Context) error
}

// What Membership says if it is left empty.
const (
	DefaultSkew         = time.Minute
	DefaultMemberMaxTTL = 5 * time.Minute
)

// Membership opens a backend as a member. All programs that use one quorum give all
// of its nodes the same one; a node remembers it, and refuses another.
type Membership struct {
	// Skew is how far the clocks of any two nodes may be apart; 0 is DefaultSkew. At
	// most 15 minutes.
	Skew time.Duration
	// MaxTTL is the longest lease, and how long a node that has lost its memory is of
	// no use; 0 is DefaultMemberMaxTTL, or what Skew needs. It is more than twice Skew.
	MaxTTL time.Duration
	// Durable says that the node's store loses nothing that it has acknowledged when it
	// is killed, nor when its machine is: then a restart is not followed by a
	// quarantine. (Redis: appendonly yes with appendfsync always.)
	Durable bool
}

// Settled returns m with its defaults, or an error that says what cannot be.
func (m Membership) Settled() (Membership, error) {
	if m.Skew == 0 {
		m.Skew = DefaultSkew
	}
	if m.MaxTTL == 0 {
		m.MaxTTL = max(DefaultMemberMaxTTL, 2*m.Skew+time.Minute)
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
	return fmt.Sprintf("it is new, or has lost its data or been restarted, and takes no locks for another %v; "+
		"if no lock can be left from before, it can be initialised", e.Left.Round(time.Millisecond))
}
