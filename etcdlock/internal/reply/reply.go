// Package reply says of an error of etcd whether the server refused, whether that may change, and what to do.
package reply

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
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

// mayChange are errors with which the server has not done what was asked, and may do it
// later. ErrNoSpace is not one of them: a server that finds out that it has no space while it applies a put has
// put it (quotaApplierV3 of etcd).
var mayChange = []error{
	rpctypes.ErrNoLeader, rpctypes.ErrNotLeader, rpctypes.ErrLeaderChanged, rpctypes.ErrTooManyRequests,
	rpctypes.ErrCorrupt, rpctypes.ErrInvalidAuthToken, rpctypes.ErrAuthOldRevision,
	rpctypes.Error(rpctypes.ErrGRPCNotSupportedForLearner),
}

// proposalDropped is the answer of a leader that is about to pass its lead on. The proposal is not in
// its log.
const proposalDropped = "raft proposal dropped"

// Right is what a call needs for its keys, in the words of etcdctl.
type Right string

// The rights.
const (
	Read  Right = "read"
	Write Right = "readwrite"
)

// Explain returns what failed behind what was being done to keys that begin with prefix, as a refusal if the server
// refused. The errors of the client have no passwords.
func Explain(etcd *clientv3.Client, prefix string, right Right, what string, err error) error {
	if errors.Is(err, rpctypes.ErrPermissionDenied) {
		return driver.Permanent(fmt.Errorf("%s: %s (%w)", what, permissionDenied(etcd, prefix, right), err))
	}
	for _, r := range refusals {
		if errors.Is(err, r.err) {
			return driver.Permanent(fmt.Errorf("%s: %s (%w)", what, r.advice, err))
		}
	}
	if etcd.Ctx().Err() != nil {
		return driver.Permanent(fmt.Errorf(
			"%s: the etcd client has been closed: close it after the locks (%w)", what, err))
	}
	told := fmt.Errorf("%s: %w", what, err)
	if errors.Is(err, rpctypes.ErrNoSpace) {
		told = fmt.Errorf("%s: the server has no space left: compact, defragment, and disarm the alarm (%w)", what, err)
	}
	if driverutil.RefusedForNow(err) || status.Convert(err).Message() == proposalDropped ||
		slices.ContainsFunc(mayChange, func(refusal error) bool { return errors.Is(err, refusal) }) {
		return driver.Refused(told)
	}
	return told
}

// permissionDenied says which right is missing, and how to grant it.
func permissionDenied(etcd *clientv3.Client, prefix string, right Right) string {
	user, may := "the user of the client", "read"
	if etcd.Username != "" {
		user = fmt.Sprintf("the user %q", etcd.Username)
	}
	if right == Write {
		may = "read and write"
	}
	return fmt.Sprintf("%s may not %s all keys that begin with %q: grant one of its roles that right, as by "+
		"etcdctl role grant-permission ROLE --prefix=true %s %s", user, may, prefix, right, cmp.Or(prefix, `""`))
}
