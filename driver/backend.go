package driver

import (
	"context"
	"iter"
	"time"
)

// Backend keeps lines of claims in a store.
//
// All methods may be called from many goroutines at once. All return soon after ctx ends, with an error
// that matches ctx.Err(). After such an error, or one that is not named here, the step may have happened
// or not. An error that matches ErrRefused means that it did not happen and cannot happen later: then
// the core sends no Leave after an Enter. If it matches ErrPermanent too, asking again is useless.
type Backend interface {
	// Enter joins the line of c.Key behind everyone else, or finds the claim with c.ID that is there
	// already and starts its lease again, with the TTL of this call, or its WaitTTL if the claim waits.
	//
	// Enter first purges what has expired. It returns ErrKind if a live claim of the line has another
	// capacity, and GoneError if c.ID has a tombstone (see Leave and Break); if both apply, either error.
	// If the claim with c.ID has another capacity or weight, it returns ErrReused.
	//
	// With c.NoWait a claim that would not be granted at once is refused with a
	// *BusyError and leaves no trace. A backend that may have sent the request twice
	// then leaves a tombstone, so another Enter of that ID returns GoneError. A repeated
	// Enter finds its claim whatever NoWait says. If that claim waits, Enter returns its
	// ticket, not granted.
	Enter(ctx context.Context, c Claim) (Ticket, error)

	// Await returns when t may have been granted, or after about a second. A pushed
	// grant costs no request. Where a push may be lost, Await reads the line again
	// each time that it is called without one, and no later than the earliest
	// expiry of a claim ahead. Await returns GoneError if the claim is no longer in
	// line. It does not renew.
	Await(ctx context.Context, t Ticket) (Ticket, error)

	// Renew starts the leases of ts again, each with its TTL, and returns one
	// error per ticket, in order: nil alive, GoneError gone or, with Left, alive under notice,
	// anything else unknown. It serves waiting and granted claims alike, and many keys in as few
	// requests as the store allows. ts is never empty and never longer than a thousand or so.
	Renew(ctx context.Context, ts []Ticket) []error

	// Leave takes the claim with t.ID out of the line, granted or waiting. It
	// returns GoneError if that claim is not in line, unless that claim wrote the
	// line's mark. Leave may be repeated through the same Backend with the same Exit.
	// It leaves a tombstone if e says so, also if the claim is not in line.
	Leave(ctx context.Context, t Ticket, e Exit) error

	// Break ends the claim of key whose span holds token, granted or waiting, and
	// leaves a tombstone: until the lease would have ended, and for as long as the claim lingers,
	// Renew, Await, Leave and Enter of that ID return GoneError with the reason. If there is no such
	// claim, Break returns GoneError and changes nothing.
	Break(ctx context.Context, key string, token int64, how Break) error

	// Line describes the line of key. A line without claims still has its Last and its
	// Mark.
	Line(ctx context.Context, key string) (Line, error)

	// Lines yields, in no promised order, the lines with at least one live claim
	// whose keys begin with prefix. Lines may change while it runs. It stops after
	// the first error that it yields.
	Lines(ctx context.Context, prefix string) iter.Seq2[Line, error]

	// Open takes the backend over for one owner, a Client or a quorum, before anything
	// but Info is called. It does no I/O. It returns an error for a bad option of the backend,
	// and for a second owner. A program that calls the backend by itself need not call it.
	Open() error

	// Info returns what this backend promises. It never changes and costs no request.
	Info() Info

	// Close ends what the backend itself started: goroutines, subscriptions, prepared
	// statements. It does not touch the user's client and the claims. A later call returns
	// ErrClosed, or is served if the backend has started nothing. Close may be called twice.
	Close() error
}

// Info lists the laws a backend keeps. drivertest tests those, and the core
// refuses what is not kept.
type Info struct {
	Name      string // "redis", "sqlite", as shown to people
	Namespace string // the prefix or the tables: with Name, it tells handles of different stores apart
	// Fair: there is one line for each key. Claims wait in it and are granted in order of arrival,
	// capacities below RW are safe, and marks are kept. If false, Enter is always sent with
	// NoWait, as to a quorum.
	Fair   bool
	Linger bool // Exit.Linger, Break.Delay and Claim.LockDelay are kept
	After  bool // Claim.After is kept
	// SharedLease says that all claims of one Backend value share a lease (etcd) or a
	// session (ZooKeeper). If false, each claim has a lease of its own.
	SharedLease bool
	// MinTTL and MaxTTL bound Claim.TTL, Exit.Linger, Break.Delay and Break.Notice, both
	// inclusive. With SharedLease, MaxTTL does not bound Break.Notice. The core sends nothing
	// outside them.
	MinTTL, MaxTTL time.Duration
}
