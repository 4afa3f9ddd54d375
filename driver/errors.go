package driver

import (
	"errors"
	"fmt"
	"time"

	"github.com/fencelock/fencelock/internal/errs"
)

// ErrKind says that the key is in use as another kind of lock, or as a semaphore of another size.
var ErrKind = errors.New("the key is in use as another kind of lock")

// ErrGranted says that a claim was to leave if it waits, and is granted.
var ErrGranted = errors.New("the claim is granted")

// ErrClosed says that the backend was closed.
var ErrClosed = errors.New("the backend is closed")

// ErrReused says that the ID of a claim is that of a claim in line with another capacity
// or weight: the program has used one ID for two locks.
var ErrReused = Permanent(
	fmt.Errorf("%w: a claim of another kind, size or number of permits has this ID", errs.Invalid))

// GoneError says that a claim is not in line, and why if that is known. Use errors.As, or Gone.
type GoneError struct {
	// Reason is text for people: what the operator wrote, or why the store let it go, if known.
	Reason string
	// Broken says that an operator ended it.
	Broken bool
	// Left is above zero if the claim is in line still, and will be gone after so long, counted
	// from the sending of the call: an operator has given notice. See Break.Notice.
	Left time.Duration
}

func (e GoneError) Error() string {
	text := "the claim is gone"
	switch {
	case e.Left > 0:
		text = fmt.Sprintf("the claim will be broken in %v", e.Left)
	case e.Broken:
		text = "the claim was broken"
	}
	if e.Reason != "" {
		text += ": " + e.Reason
	}
	return text
}

// Gone reports whether err says that a claim is gone. It is false for a claim under notice.
func Gone(err error) bool {
	if err == nil {
		return false // without the allocation of g
	}
	var g GoneError
	return errors.As(err, &g) && g.Left == 0
}

// BusyError describes the first claim of a line that would not grant a claim at once. Fields that
// the backend does not know are zero.
type BusyError struct {
	Standing
	Ahead int // live claims before the one that was refused
}

func (e *BusyError) Error() string {
	return fmt.Sprintf("held by %s, %d ahead", e.Owner, e.Ahead)
}

var (
	// ErrRefused says that the store responded and refused: the step did not happen.
	ErrRefused = errors.New("the store refuses")

	// ErrPermanent is an ErrRefused that asking again will not change: a wrong password, a
	// right that is missing, a table that is not there, a store too old.
	ErrPermanent = errors.New("the store refuses for good")
)

// Refused returns err as a refusal that may change: the store is read-only, loads its data, is out
// of memory, has no connection left, or has no majority yet. The result matches ErrRefused and has
// the text of err.
func Refused(err error) error { return &refusal{err: err} }

// Permanent returns err as a refusal that stays. The result matches ErrPermanent and ErrRefused, and
// has the text of err.
func Permanent(err error) error { return &refusal{err: err, permanent: true} }

type refusal struct {
	err       error
	permanent bool
}

func (r *refusal) Error() string { return r.err.Error() }
func (r *refusal) Unwrap() error { return r.err }

func (r *refusal) Is(target error) bool {
	return target == ErrRefused || r.permanent && target == ErrPermanent
}
