package elect

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/fence"
)

// Options configure an Election. Nil and the zero value are ready for use.
type Options struct {
	// Note is shown to others with the owner of the Client.
	Note string

	// TermEnded is called after each term of this process, before Run campaigns again
	// or returns, on Run's goroutine. lost is why the lease ended if it ended before
	// f returned, and err is what f returned.
	TermEnded func(token fence.Token, lost, err error)

	// Interval is how often Watch polls; one second if zero.
	Interval time.Duration
}

// Election lets one process take part in the election of a key's leader. Its methods may
// be called from many goroutines at once.
type Election struct {
	locks *fencelock.Client
	key   string
	o     Options
	term  atomic.Pointer[fencelock.Lease] // the latest
}

// New returns an Election that uses the lock of key. It sends no request.
func New(locks *fencelock.Client, key string, o *Options) *Election {
	e := &Election{locks: locks, key: key}
	if o != nil {
		e.o = *o
	}
	if e.o.Interval <= 0 {
		e.o.Interval = time.Second
	}
	return e
}

// Run campaigns until this process leads, and then runs f as the leader. f's context ends
// when ctx ends, or the leadership, or when a Client.Break gives notice. The process leads until
// f has returned, even if ctx ends before: f may finish its work, and then the next process leads.
// After a notice f has until the notice is over.
//
// Run returns nil if ctx ended, whether this process led or campaigned: a program steps
// down by that, on SIGTERM for example. The error or the cause of f's context does not
// count as an error of f. Run also returns nil if f returned nil.
//
// If the leadership was lost or was given notice before f returned, Run campaigns again, behind
// the others, so f may run several times. After a notice an error of f other than that of its
// context ends Run. If ctx had also ended, Run returns the loss. In all other cases it returns
// f's error.
//
// A store that is down only makes the campaign longer. Errors that waiting does not fix
// (ErrInvalid, ErrKind, ErrClosed, ErrDeadlock of package fencelock) are returned. opts
// are those of Lock; with Wait the campaign is given up after that time, with
// ErrNotAcquired.
func (e *Election) Run(
	ctx context.Context, f func(ctx context.Context, l *fencelock.Lease) error, opts ...fencelock.Option,
) error {
	if e.o.Note != "" {
		opts = append([]fencelock.Option{fencelock.Note(e.o.Note)}, opts...)
	}
	for {
		l, err := e.locks.Lock(ctx, e.key, opts...)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		lost, err := e.lead(ctx, l, f)
		_, notice := l.Revocation()
		if e.o.TermEnded != nil {
			e.o.TermEnded(l.Token(), lost, err)
		}
		switch {
		case ctx.Err() != nil && lost != nil:
			return lost
		case ctx.Err() != nil && isEnd(ctx, err):
			return nil
		case lost == nil && (notice.IsZero() || err != nil):
			return err
		}
	}
}

// isEnd reports whether err says that ctx has ended.
func isEnd(ctx context.Context, err error) bool {
	return errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx))
}

// lead is one term.
func (e *Election) lead(
	ctx context.Context, l *fencelock.Lease, f func(context.Context, *fencelock.Lease) error,
) (lost, err error) {
	defer l.Release(ctx) // also if f panics; below it has been done
	e.term.Store(l)
	work, end := context.WithCancelCause(l.Context())
	defer end(nil)
	go func() {
		select {
		case <-l.Revoked():
			reason, _ := l.Revocation()
			end(fmt.Errorf("the leadership was given notice: %s", reason))
		case <-work.Done():
		}
	}()
	err = f(work, l)
	if _, notice := l.Revocation(); !notice.IsZero() && work.Err() != nil && isEnd(work, err) {
		err = nil
	}
	if lost = l.Err(); lost == nil {
		// A release without an answer is no loss: the term is over, and its claim leaves later.
		if released := l.Release(ctx); errors.Is(released, fencelock.ErrLost) {
			lost = released
		}
	}
	return lost, err
}

// Term returns the lease under which this process leads now, and nil if it does not lead.
// It reads the clock and costs no round trip, so it may be called before every step of
// the work.
func (e *Election) Term() *fencelock.Lease {
	if l := e.term.Load(); l != nil && l.Err() == nil {
		return l
	}
	return nil
}
