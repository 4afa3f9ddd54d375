// Package driver is the contract between fencelock and the stores that keep its
// locks. Programs do not use it; they use package fencelock. It is here for
// those who write a backend, or test one with package drivertest.
//
// # The line
//
// Each key has one line of claims, in order of arrival. A claim is granted when
// its weight plus the weights of all live claims before it fit its capacity:
//
//	granted(c)  ⇔  weight(c) + Σ weight(b) for every live b before c  ≤  capacity(c)
//
// Nothing else decides who holds what. A mutex and the writer of a read-write
// lock have weight RW and capacity RW, a reader has weight 1 and capacity RW,
// a claim on a semaphore of n has weight 1..n and capacity n < RW. Claims only
// join behind, so a grant never reverts except by leaving, by expiry, or by an
// operator's Break, and the order of grants is the order of arrival.
//
// # The laws
//
// Every law is a test in package drivertest, under the name given here.
//
//   - Atomic: each method is one atomic step on the server. Drivers do not
//     retry; the core does. A driver may repeat a step only when it knows that
//     the server did not apply it (a script that was not cached, a transaction
//     that was rolled back as a deadlock's victim).
//   - Token: the token is drawn when the claim enters the line, under the same
//     lock that orders the line: max(last+1, the server's clock in µs since
//     1970). It reserves Span tokens. The memory of last may be dropped only
//     when the clock has overtaken it for 24 hours.
//   - EnterRenews: Enter of an ID that is in line answers that claim's own
//     ticket and starts its lease again. It never makes a second claim. Both are
//     sent through one Backend value; what another one does is not said.
//   - LeftFromSending: Left counts from the moment the call was sent, never from
//     when the answer came.
//   - NoResurrection: Renew answers ErrGone for a claim that is not in line,
//     whatever emptied the line, and never makes a claim. It never shortens a
//     lease.
//   - Tombstone: Leave with Token 0 keeps out a later Enter of the same ID for at
//     least one TTL: that Enter answers ErrGone.
//   - Mark: a mark is written only if the claim is alive and granted in that very
//     step. The line keeps the ID that wrote it, so a repeated Leave of that ID
//     answers nil.
//   - Linger: a claim that left with Linger counts on for that long by the
//     server's clock, cannot be renewed, and cannot leave again; a late Enter of
//     its ID answers ErrGone. Break ends it.
//   - WakeAll: whatever removes a claim (Leave, Break, a purge) wakes every claim
//     that it makes granted, not only the first, and also when the claim removed
//     was itself waiting.
//   - Kind: only Enter judges kinds, after purging what has expired.
//   - NoTrace: Enter with NoWait that is refused leaves nothing of the claim.
//   - ServerClock: expiry is judged by the server's clock alone.
//   - Hygiene: an empty line leaves nothing behind but its counter (for a day or
//     so) and its mark.
package driver

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"
)

// Ticket is what a backend returns for a claim. It is not changed once it has
// been returned; each call answers with a new one.
type Ticket struct {
	Claim // TTL is the lease as the backend grants it from now on: etcd rounds up, ZooKeeper clamps

	// Token is the first of Span tokens.
	Token int64
	// Granted says whether the claim holds the lock.
	Granted bool
	// Left is how long the lease lasts, counted from the sending of the call
	// that returned this ticket. The core reads it after Enter only, and the
	// tickets that it passes to other calls have neither Left nor Mixed.
	Left time.Duration
	// Ahead counts the live claims before this one; 0 when granted. It is for
	// people: a backend may answer a close guess for a long line.
	Ahead int
	// Mark is what the last Leave had left on the line when this claim was
	// granted. It is set on granted tickets only.
	Mark Mark
	// Head describes the first claim of the line when this one is not granted;
	// nil where the backend has not looked.
	Head *BusyError
	// Mixed says that a live claim of this line has another Capacity: two sizes
	// of one semaphore are in use.
	Mixed bool
}

// Exit says how a claim leaves.
type Exit struct {
	// Mark replaces the line's mark, unless empty.
	Mark Mark
	// Linger keeps the place taken for that much longer.
	Linger time.Duration
}

// Backend keeps lines of claims in a store.
//
// All methods may be called from many goroutines at once. All return soon after
// ctx ends, with an error that matches ctx.Err(); the effect of a call that was
// cut short is unknown. An error that is none of those named here means "unknown":
// the step may have happened or not. A *PermanentError means that it did not happen
// and that asking again is useless.
type Backend interface {
	// Enter joins the line of c.Key behind everyone else, or finds the claim
	// with c.ID that is there already and starts its lease again, with the TTL of
	// this call.
	//
	// It first purges what has expired. It answers ErrKind if a live claim of the
	// line is of the other kind (RW against semaphore), and ErrGone if c.ID has
	// been laid to rest (see Leave and Break); if both are true, either.
	//
	// With c.NoWait a claim that would not be granted at once is refused with a
	// *BusyError and leaves no trace. A repeated Enter finds its claim whatever
	// NoWait says, and if that claim waits, it answers its ticket, not granted.
	Enter(ctx context.Context, c Claim) (Ticket, error)

	// Await returns when the standing of t may have changed, or after about a
	// second. It asks no more of the server than it needs: a pushed grant costs
	// nothing. Where a push may be lost it reads the line again each time it is
	// called without one, and no later than the earliest expiry of a claim ahead.
	// It answers ErrGone if the claim is no longer in line. It does not renew.
	Await(ctx context.Context, t Ticket) (Ticket, error)

	// Renew starts the leases of ts again, each with its TTL, and answers one
	// error per ticket, in order: nil alive, ErrGone gone, anything else unknown.
	// It serves waiting and granted claims alike, and many keys in as few
	// requests as the store allows. ts is never empty and never longer than a
	// thousand or so.
	Renew(ctx context.Context, ts []Ticket) []error

	// Leave takes the claim with t.ID out of the line, granted or waiting. It
	// answers ErrGone if that claim is not in line (unless it is the one that
	// wrote the line's mark). If t.Token is 0, the caller does not know whether an
	// Enter of this ID may still arrive, and Leave lays the ID to rest: for at
	// least t.TTL an Enter of it answers ErrGone. It is repeated, as Enter is, through
	// the same Backend and with the same Exit.
	Leave(ctx context.Context, t Ticket, e Exit) error

	// Break ends the claim of key whose span holds token, granted or waiting, and
	// lays its ID to rest: until its lease would have ended, Renew, Await, Leave
	// and Enter of that ID answer ErrGone with the reason. If there is no such
	// claim it answers ErrGone, and nothing has changed.
	Break(ctx context.Context, key string, token int64, reason string) error

	// Lines yields, in no promised order, the lines with at least one live claim
	// whose keys begin with prefix. It is a look, not a step: lines may change
	// while it runs. It stops after the first error that it yields.
	Lines(ctx context.Context, prefix string) iter.Seq2[Line, error]

	// Info says what this backend promises. It does not change and asks nobody.
	Info() Info

	// Close ends what the backend itself started: goroutines, subscriptions,
	// prepared statements. It does not close the user's client, and it leaves
	// claims alone. A call after Close answers ErrClosed; a backend that has started
	// nothing may go on serving. Close may be called twice.
	Close() error
}

// LineReader is optional: a backend that can look at one line without going
// through all of them. The line may be empty of claims; Last and Mark then tell
// what it remembers.
type LineReader interface {
	Line(ctx context.Context, key string) (Line, error)
}

// Reserver is optional: a backend that can lengthen the span of a claim that holds its lock
// and is alone in the line, in one request.
//
// Reserve makes the claim of t reserve span tokens from t.Token on, where t.Span says how
// many it is known to have. It reports false if it has done nothing, as whenever another
// claim is in line, when t is not or waits, or when a token that would be needed was drawn
// already; and whenever it likes. It does not start the lease again. After an error it may
// have happened, or happen yet. It never makes a span shorter.
type Reserver interface {
	Reserve(ctx context.Context, t Ticket, span int64) (done bool, err error)
}

// Lease says what keeps a claim alive.
type Lease int

const (
	PerClaim  Lease = iota // each claim has its own lease
	PerClient              // claims of one Backend value share a lease (etcd) or session (ZooKeeper)
)

// Info lists the laws a backend keeps. drivertest tests those, and the core
// refuses what is not kept.
type Info struct {
	Name      string // "redis", "sqlite", as shown to people
	Fair      bool   // claims are granted in order of arrival; if false, Enter is always sent with NoWait
	Fencing   bool   // tokens of exclusive grants rise
	Ballot    bool   // Claim.Ballot is understood
	Linger    bool   // Exit.Linger is kept
	Mark      bool   // Exit.Mark is kept
	Semaphore bool   // capacities below RW are safe
	Push      bool   // a waiter learns of its grant without asking
	Lease     Lease
	// MinTTL and MaxTTL bound Claim.TTL and Exit.Linger, both inclusive. The core
	// sends nothing outside them.
	MinTTL, MaxTTL time.Duration
}

// Line is one line, as seen by people and by tests.
type Line struct {
	Key    string
	Last   int64 // the largest token drawn so far, 0 if none is remembered
	Mark   Mark
	Claims []Standing // live claims in order of arrival
}

// Standing is one claim as seen from outside.
type Standing struct {
	ID               string // cut to 8 characters: enough to tell claims apart, too little to leave with
	Owner, Note      string
	Capacity, Weight int64
	Token, Span      int64
	Granted          bool
	Lingering        bool      // its holder left, the place stays taken for Left
	Since            time.Time // granted since, or waiting since
	Left             time.Duration
}

// ErrKind says that the key is in use as another kind of lock.
var ErrKind = errors.New("the key is in use as another kind of lock")

// ErrClosed says that the backend was closed.
var ErrClosed = errors.New("the backend is closed")

// ErrGone says that a claim is not in line, and why if that is known. Use
// errors.As, or Gone.
type ErrGone struct {
	// Reason is text for people: what the operator wrote, or why the store let
	// it go. Empty when nobody knows.
	Reason string
	// Broken says that an operator ended it.
	Broken bool
}

func (e ErrGone) Error() string {
	switch {
	case e.Broken && e.Reason != "":
		return "the claim was broken: " + e.Reason
	case e.Broken:
		return "the claim was broken"
	case e.Reason != "":
		return "the claim is gone: " + e.Reason
	}
	return "the claim is gone"
}

// Ended says why ctx has ended, and is nil if it has not. A deadline that has passed counts,
// though ctx itself may not know it yet: a connection that has the same deadline, or a server
// that was told it, sees it first about as often as ctx does, and a backend that asks
// ctx.Err() what such an error means takes the end of a call for an outage of the store.
func Ended(ctx context.Context) error {
	err := ctx.Err()
	if d, ok := ctx.Deadline(); err == nil && ok && !time.Now().Before(d) {
		return context.DeadlineExceeded
	}
	return err
}

// Gone reports whether err says that a claim is gone.
func Gone(err error) bool {
	var g ErrGone
	return errors.As(err, &g)
}

// ErrBallot says that a ballot was not above the floor, or too far ahead.
type ErrBallot struct{ Last int64 }

func (e ErrBallot) Error() string {
	return fmt.Sprintf("the ballot is outside what this node grants after %d", e.Last)
}

// BusyError says who is first in a line that would not grant a claim at once.
type BusyError struct {
	Owner, Note string
	Token       int64
	Since       time.Time
	Left        time.Duration
	Ahead       int // live claims before the one that was refused
}

func (e *BusyError) Error() string {
	return fmt.Sprintf("held by %s, %d ahead", e.Owner, e.Ahead)
}

// PermanentError is an answer that asking again will not change: a wrong
// password, a right that is missing, a table that is not there, a store too old.
type PermanentError struct{ Err error }

func (e *PermanentError) Error() string { return e.Err.Error() }
func (e *PermanentError) Unwrap() error { return e.Err }
