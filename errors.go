package fencelock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/internal/driverutil"
	"github.com/fencelock/fencelock/internal/errs"
)

// The errors that callers branch on, with errors.Is. Each comes wrapped in one
// that names the operation and the key.
var (
	// ErrNotAcquired: the lock was refused, or Wait ran out while in line. It
	// always comes with a *HeldError that says who holds the lock.
	ErrNotAcquired = errs.NotAcquired

	// ErrUnavailable: the store failed. It wraps the driver's error, and never matches
	// ErrNotAcquired. There are three cases:
	//
	//   - The error does not match ErrRefused: the store did not respond, and the outcome is unknown.
	//   - It matches ErrRefused: the store refused, the call did nothing, and waiting may help.
	//   - It matches ErrPermanent, too: waiting does not help.
	ErrUnavailable = errs.Unavailable

	// ErrRefused: the store responded and refused, so the call did nothing. It comes with
	// ErrUnavailable.
	ErrRefused = driver.ErrRefused

	// ErrPermanent: the store refuses, and waiting does not help: a wrong password, a missing
	// right or table. It comes with ErrRefused, or alone if an earlier request of the same call
	// may have taken effect.
	ErrPermanent = driver.ErrPermanent

	// ErrLost: the lease ended before its holder did. It is the cause of the
	// lease's context. Each of the four losses below matches it as well.
	ErrLost = errors.New("the lock was lost")

	// ErrExpired is a loss: the deadline passed without a renewal.
	ErrExpired error = loss("the lease ran out before it could be renewed")

	// ErrStalled is a loss: the holder made no progress, so the lease was not renewed (see
	// Progress). EventAtRisk has it too, before the loss.
	ErrStalled error = loss("the holder made no progress")

	// ErrBroken is a loss: an operator broke it, or the store no longer has it.
	ErrBroken error = loss("the store ended the claim")

	// ErrMaxHold is a loss: MaxHold was reached.
	ErrMaxHold error = loss("the longest holding time was reached")

	// ErrClosed: the Client was closed. A call on a closed Client returns it, and holds
	// nothing. It is the cause of the leases that Close ended, which match ErrLost as well.
	ErrClosed = errors.New("the client is closed")

	// ErrReleased: the holder released the lock. It is a cause, not a loss.
	ErrReleased = errors.New("the lock was released")

	// ErrDetached: the lease goes on under its handle. It is a cause, not a loss.
	ErrDetached = errors.New("the lock was detached")

	// ErrDeadlock: the call would wait for itself, because ctx already holds the key, or
	// because transactions with locks of sqllock.Tx wait for each other.
	ErrDeadlock = errs.Deadlock

	// ErrKind: the key is in use as another kind of lock, or as a semaphore of another size.
	// The text says both.
	ErrKind = driver.ErrKind

	// ErrNoClaim: the line has no claim with the token that Break was given.
	ErrNoClaim = errors.New("no claim has the token")

	// ErrSlotPassed: Once did not run, because a later slot of the key is done. Whether this
	// one was done before is not known.
	ErrSlotPassed = errors.New("a later slot is done, so this one cannot run any more")

	// ErrInvalid: a key, TTL, weight or option is out of range, or two options
	// contradict each other.
	ErrInvalid = errs.Invalid
)

// loss is a sentinel that ErrLost matches.
type loss string

func (l loss) Error() string        { return string(l) }
func (l loss) Is(target error) bool { return target == ErrLost }

// HeldError says that a lock was not granted, and describes the claim of its holder: Owner, Note,
// Trace, Token, Since and Left, as far as the store reported them. It matches ErrNotAcquired.
type HeldError struct {
	Key string
	Standing
	Ahead int // claims before this one, the holder's included
}

// Error returns one line for people, with control characters of owner and note
// escaped: "orders/42 is held by web-3/812 (note) since 14:02:11, 2 ahead with the
// holder".
func (e *HeldError) Error() string {
	var b strings.Builder
	b.WriteString(printable(e.Key))
	if e.Owner == "" {
		b.WriteString(" is held by somebody else")
	} else {
		b.WriteString(" is held by ")
		b.WriteString(printable(e.Owner))
	}
	if e.Note != "" {
		b.WriteString(" (" + printable(e.Note) + ")")
	}
	if !e.Since.IsZero() {
		b.WriteString(" since " + clockTime(e.Since))
	}
	if e.Ahead > 1 {
		fmt.Fprintf(&b, ", %d ahead with the holder", e.Ahead)
	}
	return b.String()
}

// Is makes a HeldError match ErrNotAcquired.
func (e *HeldError) Is(target error) bool { return target == ErrNotAcquired }

func clockTime(t time.Time) string {
	t = t.Local()
	if now := time.Now(); t.YearDay() == now.YearDay() && t.Year() == now.Year() {
		return t.Format("15:04:05")
	}
	return t.Format("2006-01-02 15:04:05")
}

// printable makes text of unknown origin safe to show. It escapes control characters,
// broken UTF-8 and direction marks, and cuts the text to a length that fits a line.
func printable(s string) string {
	const most = 200
	quoted := strconv.Quote(s)
	shown := strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
	if len(shown) <= most {
		return shown
	}
	return strings.ToValidUTF8(shown[:most], "") + "…"
}

type opError struct {
	op, key string
	err     error
}

func (e *opError) Error() string {
	switch err := e.err.(type) {
	case *HeldError: // it begins with the key, as a loss does
		return e.op + ": not acquired: " + err.Error()
	case *lossError:
		return e.op + ": " + err.Error()
	}
	if e.key == "" {
		return e.op + ": " + e.err.Error()
	}
	return e.op + " " + printable(e.key) + ": " + e.err.Error()
}

func (e *opError) Unwrap() error { return e.err }

func wrap(op, key string, err error) error {
	if err == nil {
		return nil
	}
	return &opError{op, key, err}
}

// unavailable wraps a driver's error so that both it and ErrUnavailable match, but no error
// of a context, unless it is ctx that has ended.
func unavailable(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, driver.ErrClosed):
		return fmt.Errorf("%w: %w", ErrClosed, err)
	case driverutil.Ended(ctx) == nil && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)):
		err = limitError{err}
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

// limitError is the error of a request whose own time limit has ended, or the client of the store: it matches what err
// matches, but no error of a context.
type limitError struct{ err error }

func (e limitError) Error() string { return e.err.Error() }

func (e limitError) Is(target error) bool {
	return target != context.DeadlineExceeded && target != context.Canceled && errors.Is(e.err, target)
}

func (e limitError) As(target any) bool { return errors.As(e.err, target) }

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInvalid, fmt.Sprintf(format, args...))
}

var (
	errLate     = errors.New("the answer came after the lease it speaks of had ended")
	errNoAnswer = errors.New("no answer came in time")
)

// lossError says why a lease ended: one of the losses, the key, the token, and
// what else is known.
type lossError struct {
	kind   error // ErrExpired, ErrStalled, ErrBroken, ErrMaxHold, ErrClosed
	key    string
	token  fence.Token
	detail string
	by     lossBy
}

// lossBy says what has ended a claim, where that matters.
type lossBy uint8

const (
	lossByOther    lossBy = iota
	lossByOperator        // broke it
)

func lossOf(g driver.GoneError) lossBy {
	if g.Broken {
		return lossByOperator
	}
	return lossByOther
}

// goneOf returns the GoneError in err, a result of a backend, or the zero GoneError. With a time that
// is Left, it is a notice.
func goneOf(err error) driver.GoneError {
	if err == nil {
		return driver.GoneError{} // without the allocation of g
	}
	var g driver.GoneError
	errors.As(err, &g)
	return g
}

func (e *lossError) Error() string {
	s := printable(e.key) + " (token " + e.token.String() + ") was lost: " + e.kind.Error()
	if e.detail != "" {
		s += ": " + printable(e.detail)
	}
	return s
}

func (e *lossError) Is(target error) bool { return target == ErrLost || target == e.kind }

// withLoss adds released, the result of a Release, to the error of the work, if it is a loss
// that the work does not report itself. A release that could not be confirmed is not a failure
// of the work.
func withLoss(work, released error) error {
	var loss *lossError
	switch {
	case !errors.As(released, &loss):
		return work
	case work == nil:
		return released
	case errors.Is(work, loss):
		return work
	}
	return fmt.Errorf("%w; %w", work, released)
}

// releasedError is the cause of a context whose lease was released.
type releasedError struct{ l *Lease }

func (e releasedError) Error() string { return e.l.String() + " was released" }

func (e releasedError) Is(target error) bool { return target == ErrReleased }

// refusal turns the reason why the call ended without a lease into its error.
func (a *acquisition) refusal(err error) error {
	if a.ctx.Err() != nil && errors.Is(err, a.ctx.Err()) {
		return &endedError{errContext(a.ctx), a.lastHeard()}
	}
	return err
}

// lastHeard says who holds the key, or that the store does not respond.
func (a *acquisition) lastHeard() error {
	switch {
	case a.answered:
		return a.heldBy(a.blocker)
	case a.lastErr != nil:
		return a.unavailable(a.lastErr)
	}
	return unavailable(a.ctx, errNoAnswer)
}

func (a *acquisition) heldBy(b *driver.BusyError) *HeldError {
	h := &HeldError{Key: a.key, Ahead: a.ahead}
	if b != nil {
		h.describe(b)
		h.Ahead = max(b.Ahead, a.ahead)
	}
	return h
}

func (h *HeldError) describe(b *driver.BusyError) {
	h.Owner, h.Token, h.Since, h.Left = b.Owner, fence.Token(b.Token), b.Since, b.Left
	h.Note, h.Trace = b.Note, b.Trace
}

// endedError is the error of a call whose context ended: the context's error with its cause,
// and what the call waited for.
type endedError struct{ ctx, why error }

func (e *endedError) Error() string   { return e.ctx.Error() + " while waiting: " + e.why.Error() }
func (e *endedError) Unwrap() []error { return []error{e.ctx, e.why} }

func errContext(ctx context.Context) error {
	err := ctx.Err()
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", err, cause)
	}
	return err
}
