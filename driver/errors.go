package driver

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// ErrKind says that the key is in use as another kind of lock, or as a semaphore of another size.
var ErrKind = errors.New("the key is in use as another kind of lock")

// ErrGranted says that a claim was to leave if it waits, and is granted.
var ErrGranted = errors.New("the claim is granted")

// The errors that both the core and a backend's own calls return. Package fencelock
// documents what each means to a caller.
var (
	ErrNotAcquired = errors.New("not acquired")
	ErrUnavailable = errors.New("the store is unavailable")
	ErrDeadlock    = errors.New("the caller would wait for itself")
	ErrInvalid     = errors.New("invalid")
)

// ErrOwned says that another Client or quorum has taken the backend over.
var ErrOwned = errors.New("the backend has an owner already: make a backend for each Client")

// Ownership implements Open for a backend. The zero value is ready.
type Ownership struct{ taken atomic.Bool }

// Take returns bad, the error of the backend's options, if it is not nil, and ErrOwned if
// Take has returned nil before.
func (o *Ownership) Take(bad error) error {
	switch {
	case bad != nil:
		return bad
	case !o.taken.CompareAndSwap(false, true):
		return ErrOwned
	}
	return nil
}

// ErrClosed says that the backend was closed.
var ErrClosed = errors.New("the backend is closed")

// ErrReused says that the ID of a claim is that of a claim in line with another capacity
// or weight: the program has used one ID for two locks.
var ErrReused error = &PermanentError{
	Err: fmt.Errorf("%w: a claim of another kind, size or number of permits has this ID", ErrInvalid),
}

// GoneError says that a claim is not in line, and why if that is known. Use
// errors.As, or Gone.
type GoneError struct {
	// Reason is text for people: what the operator wrote, or why the store let
	// it go. Empty when nobody knows.
	Reason string
	// Broken says that an operator ended it.
	Broken bool
}

func (e GoneError) Error() string {
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

// Ended says why ctx has ended, or returns nil. A deadline that has passed counts even
// if ctx does not know it yet: a connection with the same deadline often notices first,
// and its error would look like an outage of the store.
func Ended(ctx context.Context) error {
	err := ctx.Err()
	if d, ok := ctx.Deadline(); err == nil && ok && !time.Now().Before(d) {
		return context.DeadlineExceeded
	}
	return err
}

// Gone reports whether err says that a claim is gone.
func Gone(err error) bool {
	var g GoneError
	return errors.As(err, &g)
}

// BallotError says that a ballot was not above the floor, or too far ahead.
type BallotError struct{ Last int64 }

func (e BallotError) Error() string {
	return fmt.Sprintf("the ballot is outside what this node grants after %d", e.Last)
}

// BusyError describes the first claim of a line that would not grant a claim at once.
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

// ErrRefused says that the store answered and refused: the step did not happen. A *RefusedError
// and a *PermanentError match it. After an error that does not match, and is not another answer
// of the contract, the outcome is unknown: the step may have happened, or may still.
var ErrRefused = errors.New("the store refuses")

// PermanentError is a refusal that asking again will not change: a wrong
// password, a right that is missing, a table that is not there, a store too old.
type PermanentError struct{ Err error }

func (e *PermanentError) Error() string { return e.Err.Error() }
func (e *PermanentError) Unwrap() error { return e.Err }

// Is makes a PermanentError match ErrRefused.
func (e *PermanentError) Is(target error) bool { return target == ErrRefused }

// RefusedError is a refusal that may change: the store is read-only, loads its data, is out of
// memory, has no connection left, or has no majority yet.
type RefusedError struct{ Err error }

func (e *RefusedError) Error() string { return e.Err.Error() }
func (e *RefusedError) Unwrap() error { return e.Err }

// Is makes a RefusedError match ErrRefused.
func (e *RefusedError) Is(target error) bool { return target == ErrRefused }

// Unsettled returns err, a refusal of the last of several requests, for a step that an earlier
// one may have done: it no longer matches ErrRefused or *RefusedError. A *PermanentError stays one.
func Unsettled(err error) error {
	if !errors.Is(err, ErrRefused) {
		return err
	}
	return &unsettledError{err}
}

type unsettledError struct{ err error }

func (e *unsettledError) Error() string { return e.err.Error() }
func (e *unsettledError) Is(target error) bool {
	return target != ErrRefused && errors.Is(e.err, target)
}

func (e *unsettledError) As(target any) bool {
	if _, ok := target.(**RefusedError); ok {
		return false
	}
	return errors.As(e.err, target)
}
