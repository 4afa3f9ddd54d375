package etcdlock

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/etcdlock/internal/reply"
	"github.com/fencelock/fencelock/internal/driverutil"
)

// unsureError is the error of a step of several requests, of which one before the last has put a
// claim.
type unsureError struct{ error }

func (e unsureError) Unwrap() error { return e.error }

func unsure(err error) error {
	if err == nil {
		return nil
	}
	return unsureError{err}
}

func isBusy(err error) bool {
	var busy *driver.BusyError
	return errors.As(err, &busy)
}

// isAnswer reports whether err says what became of a claim. After any other error the
// outcome of the request is unknown.
func isAnswer(err error) bool {
	return errors.As(err, new(driver.GoneError)) || isBusy(err) || errors.Is(err, driver.ErrKind) ||
		errors.Is(err, driver.ErrGranted) || errors.Is(err, driver.ErrPermanent)
}

// explain says what a call was doing when err happened, and what helps.
func (b *Backend) explain(ctx context.Context, right reply.Right, doing, key string, err error) error {
	switch {
	case err == nil:
		return nil
	case b.ctx.Err() != nil:
		return driver.ErrClosed
	case isAnswer(err):
		return err
	}
	what := fmt.Sprintf("etcd: %s %q", doing, key)
	if ended := driverutil.Ended(ctx); ended != nil {
		return fmt.Errorf("%s: %w", what, ended)
	}
	told := reply.Explain(b.etcd, b.prefix, right, what, err)
	if errors.As(err, new(unsureError)) {
		return driverutil.Unsettled(told)
	}
	return told
}

// Reasons that are not an operator's.
var (
	errLeft      = driver.GoneError{Reason: "it has left"}
	errNameTaken = driver.GoneError{Reason: "something else has the name of its key"}
	errEnded     = driver.GoneError{Reason: "its lease has ended, or its key was deleted"}
	errWaits     = driver.GoneError{Reason: "it waits, and only a holder can pass on"}
)

// goneFor says why a claim is not in line.
func goneFor(kv *keyValue) error {
	if kv == nil {
		return errEnded
	}
	var r tombstone
	if err := decode(kv, &r); err != nil {
		return err
	}
	if r.Broken || r.Reason != "" {
		return driver.GoneError{Reason: r.Reason, Broken: r.Broken}
	}
	return errLeft
}
