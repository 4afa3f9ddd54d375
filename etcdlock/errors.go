package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/status"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/driverutil"
)

// refusals are errors of the server that will come again, and what to do about them.
// After any other error the outcome of the request is unknown: no leader just now, a
// member that stops, a connection that broke.
var refusals = []struct {
	err    error
	advice string
}{
	{rpctypes.ErrUserEmpty, "the server wants a user and a password: give the client both"},
	{rpctypes.ErrAuthFailed, "the server refuses the user or the password"},
	{rpctypes.ErrAuthNotEnabled, "the server has no authentication: give the client no user"},
	{rpctypes.ErrTooManyOps, "the server takes fewer operations in a transaction than etcd's default of 128: " +
		"raise its max-txn-ops"},
	{rpctypes.ErrRequestTooLarge, "the server takes shorter requests than this: raise its max-request-bytes"},
	{rpctypes.ErrLeaseTTLTooLarge, "the server takes no lease that long"},
	{rpctypes.ErrNotCapable, "the server is too old: use etcd 3.4 or newer"},
}

// refusedForNow are errors with which the server has not done what was asked, and may do it
// later. ErrNoSpace is not one of them: see enterOnce.
var refusedForNow = []error{
	rpctypes.ErrNoLeader, rpctypes.ErrNotLeader, rpctypes.ErrLeaderChanged, rpctypes.ErrTooManyRequests,
	rpctypes.ErrCorrupt, rpctypes.ErrInvalidAuthToken, rpctypes.ErrAuthOldRevision,
	rpctypes.Error(rpctypes.ErrGRPCNotSupportedForLearner),
}

// proposalDropped is the answer of a leader that is about to pass its lead on. The proposal is not in
// its log.
const proposalDropped = "raft proposal dropped"

const adviceNoSpace = "the server has no space left: compact, defragment, and disarm the alarm"

func refusesForNow(err error) bool {
	return driverutil.RefusedForNow(err) || status.Convert(err).Message() == proposalDropped ||
		slices.ContainsFunc(refusedForNow, func(refusal error) bool { return errors.Is(err, refusal) })
}

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

// What a call needs the right to, in the words of etcdctl.
const (
	rightToRead  = "read"
	rightToWrite = "readwrite"
)

// permissionDenied says which right is missing, and how to grant it.
func (b *Backend) permissionDenied(right string) string {
	user, may := "the user of the client", "read"
	if b.etcd.Username != "" {
		user = fmt.Sprintf("the user %q", b.etcd.Username)
	}
	if right == rightToWrite {
		may = "read and write"
	}
	return fmt.Sprintf("%s may not %s all keys that begin with %q: grant one of its roles that right, as by "+
		"etcdctl role grant-permission ROLE --prefix=true %s %s", user, may, b.prefix, right, b.prefix)
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

// explain says what a call was doing when err happened, and what helps. The errors of
// the client have no passwords.
func (b *Backend) explain(ctx context.Context, right, doing, key string, err error) error {
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
	told := b.refusal(what, right, err)
	if errors.As(err, new(unsureError)) {
		return driverutil.Unsettled(told)
	}
	return told
}

// refusal returns err as what it says became of the request. After an error that is not a refusal
// the outcome is unknown.
func (b *Backend) refusal(what, right string, err error) error {
	if errors.Is(err, rpctypes.ErrPermissionDenied) {
		return driver.Permanent(fmt.Errorf("%s: %s (%w)", what, b.permissionDenied(right), err))
	}
	for _, r := range refusals {
		if errors.Is(err, r.err) {
			return driver.Permanent(fmt.Errorf("%s: %s (%w)", what, r.advice, err))
		}
	}
	if b.etcd.Ctx().Err() != nil {
		return driver.Permanent(fmt.Errorf(
			"%s: the etcd client has been closed: close it after the locks (%w)", what, err))

	}
	told := fmt.Errorf("%s: %w", what, err)
	if errors.Is(err, rpctypes.ErrNoSpace) {
		told = fmt.Errorf("%s: %s (%w)", what, adviceNoSpace, err)
	}
	if refusesForNow(err) {
		return driver.Refused(told)
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
