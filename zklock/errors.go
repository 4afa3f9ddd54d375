package zklock

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencelock/fencelock/driver"
	"github.com/go-zookeeper/zk"
)

// refusals are answers that asking again will not change, and what to do about
// them. All others say nothing about the step: the connection broke, the ensemble
// elects a leader, a server restarts.
var refusals = []struct {
	err    error
	advice string
}{
	{zk.ErrNoAuth, "the server does not let this client do that"},
	{zk.ErrAuthFailed, "the server refuses how the client says who it is"},
	{zk.ErrInvalidACL, "the server refuses the ACL: it names a scheme that the server does not know, or users before any Digest is given"},
	{zk.ErrInvalidPath, "this is no path that ZooKeeper takes: use another Prefix"},
	{zk.ErrNoChildrenForEphemerals, "the Prefix leads through an ephemeral node, which has no children: use another Prefix"},
	{zk.ErrBadArguments, "the server refuses the request: the Prefix may be reserved; use another one"},
	{errUnimplemented, "the server does not know container nodes: use ZooKeeper 3.5.3 or newer"},
}

// errUnimplemented stands for the answer to a request that the server does not know.
var errUnimplemented = errors.New("unimplemented")

// failed explains an error of one request.
func failed(ctx context.Context, doing, key string, err error) error {
	if err == nil {
		return nil
	}
	if plainWord(err) {
		return err
	}
	what := fmt.Sprintf("zookeeper: %s %q", doing, key)
	if ended := ctx.Err(); ended != nil && !errors.Is(err, ended) {
		return fmt.Errorf("%s: %w (%w)", what, ended, err)
	}
	if errors.As(err, new(*deniedError)) {
		return &driver.PermanentError{Err: fmt.Errorf("%s: %w", what, err)}
	}
	for _, r := range refusals {
		if errors.Is(err, r.err) {
			return &driver.PermanentError{Err: fmt.Errorf("%s: %s (%w)", what, r.advice, err)}
		}
	}
	return fmt.Errorf("%s: %w", what, err)
}

// answered reports whether err is the server's own word on what was asked. After
// any other error nobody knows whether the request was applied, or still will be.
func answered(err error) bool {
	for _, e := range []error{
		nil, zk.ErrNoNode, zk.ErrNodeExists, zk.ErrBadVersion, zk.ErrNotEmpty, zk.ErrNoAuth, zk.ErrInvalidACL,
		zk.ErrNoChildrenForEphemerals, zk.ErrBadArguments, zk.ErrInvalidPath, zk.ErrAPIError, errUnimplemented,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// What a claim ended of.
var (
	goneLeft    = driver.ErrGone{Reason: "it has left"}
	goneSession = driver.ErrGone{Reason: "the ZooKeeper session expired"}
	goneLease   = driver.ErrGone{Reason: "its lease ended"}
	goneDeleted = driver.ErrGone{Reason: "its node was deleted"}
)

// errNoSession says that a session ended in the middle of a step.
var errNoSession = errors.New("the session ended meanwhile")

// plainWord reports whether err is one of the contract's own answers.
func plainWord(err error) bool {
	return driver.Gone(err) || errors.Is(err, driver.ErrKind) || errors.Is(err, driver.ErrClosed) ||
		errors.As(err, new(*driver.BusyError)) || errors.As(err, new(*driver.PermanentError))
}
