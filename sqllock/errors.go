package sqllock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/sqllock/internal/reply"
)

// isAnswer reports whether err is an answer of the store, not a failure to get one.
func isAnswer(err error) bool {
	return driver.Gone(err) || errors.Is(err, driver.ErrKind) || errors.Is(err, driver.ErrGranted) ||
		errors.Is(err, errUnbound) || errors.Is(err, errCircle) ||
		errors.As(err, new(*driver.BusyError)) || errors.Is(err, driver.ErrRefused)
}

// fail says what went wrong, what to do about it if that is known, and whether asking again is of use. Errors of
// drivers name the host and the user, but no password.
func (c *config) fail(what, key string, err error) error {
	var out *outOfTimeError
	switch {
	case err == nil, isAnswer(err):
		return err
	case errors.As(err, &out):
		err = out.last
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	}
	if key != "" {
		what = fmt.Sprintf("%s %q", what, key)
	}
	advice, v := c.dialect.Meaning(err)
	if advice != "" {
		what += ", " + c.sql(advice)
	}
	err = fmt.Errorf("%s: cannot %s: %w", c.name, what, err)
	switch {
	case out != nil && v != reply.Refused:
		return out.ended
	case out != nil:
		err = &outOfTimeError{last: err, ended: out.ended, told: true}
	}
	return v.Of(err)
}

// outOfTimeError is the end of a context between two tries. Nothing is under way, and last is why the
// try before did nothing, or the connection that it could not use.
type outOfTimeError struct {
	last, ended error
	told        bool // last is what the caller is to read
}

func (e *outOfTimeError) Error() string {
	if e.told {
		return e.last.Error()
	}
	return e.ended.Error()
}

func (e *outOfTimeError) Unwrap() []error { return []error{e.last, e.ended} }

// A call had no connection, no open file, or did not come to its turn, until its context ended.
var (
	errAllInUse = errors.New("no connection was free in time")
	errNoTurn   = errors.New("it was not its turn in time")
	errNotOpen  = errors.New("the file was not opened in time")
)

// retry calls f until it returns another error than those that again accepts, or ctx ends.
func retry(ctx context.Context, again func(error) bool, first, longest time.Duration, f func() error) error {
	var last error // of the try before
	for wait := first; ; wait = min(wait*3/2, longest) {
		err := f()
		if out := (*outOfTimeError)(nil); last != nil && errors.As(err, &out) {
			out.last = last // it says more than that the context ended before this try began
		}
		if err == nil || !again(err) {
			return err
		}
		last = err
		// Half of it at random, or two processes that collide would do so again.
		select {
		case <-time.After(wait/2 + rand.N(wait)):
		case <-ctx.Done():
		}
		if ended := ctx.Err(); ended != nil {
			return &outOfTimeError{last: err, ended: ended}
		}
	}
}

// says reports that err has one of those texts. No driver is imported for codes of SQLite: all drivers pass its
// texts on.
func says(err error, texts ...string) bool {
	return err != nil && !isAnswer(err) && reply.Says(err, texts...)
}

func permanent(err error) error { return driver.Permanent(err) }
