package sqllock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	sqldriver "database/sql/driver"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/swapsql"
)

// isAnswer reports whether err is an answer of the store, not a failure to get one.
func isAnswer(err error) bool {
	return driver.Gone(err) || errors.Is(err, driver.ErrKind) || errors.Is(err, driver.ErrGranted) ||
		errors.Is(err, errUnbound) || errors.Is(err, errCircle) ||
		errors.As(err, new(*driver.BusyError)) || errors.Is(err, driver.ErrRefused)
}

// verdict is what an error of the database says of the step: that it may have happened, that the
// database refused it and may do it later, or that asking again is useless.
type verdict int

const (
	unknown verdict = iota
	refused
	lasting
)

// failure says what went wrong in the database of that name. advise says what to do about
// it, if that is known. Errors of drivers name the host and the user, but no password.
func failure(name, what, key string, err error, advise func(error) (advice string, v verdict)) error {
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
	if strings.Contains(err.Error(), "sql: database is closed") {
		return permanent(fmt.Errorf("%s: cannot %s, the program has closed the database", name, what))
	}
	advice, v := advise(err)
	if advice != "" {
		what += ", " + advice
	}
	err = fmt.Errorf("%s: cannot %s: %w", name, what, err)
	switch {
	case out != nil && v != refused:
		return out.ended
	case out != nil:
		err = &outOfTimeError{last: err, ended: out.ended, told: true}
	}
	switch v {
	case refused:
		return driver.Refused(err)
	case lasting:
		return permanent(err)
	}
	return err
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

// closeConn closes a connection instead of giving it back to the pool.
func closeConn(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return sqldriver.ErrBadConn })
	conn.Close()
}

// serverErrors says what the errors of a kind of server mean.
type serverErrors struct {
	*swapsql.Dialect
	missing []string // a table is not there
	advice  []advice
	// moved says that another server must be asked: this one takes no writes, so it did not
	// happen. gone begins the codes of all errors after which a connection is not used again.
	moved, gone []string
	// refused says that the server did not do it, and may do it later. pooler are the texts of poolers
	// that say the same, which have no code of their own.
	refused, pooler []string
}

// advice says what to do about errors that would come again.
type advice struct{ codes, text string }

func permanent(err error) error { return driver.Permanent(err) }

// damaged says that the rows of a line are not what fencelock has written.
func damaged(key string, err error) error {
	return permanent(fmt.Errorf("the rows of lock %q are damaged (%w): delete its rows from all tables, then try again",
		key, err))
}
