package zklock

import (
	"context"
	"errors"
	"fmt"
	"path"

	"github.com/fencelock/fencelock/driver"
	"github.com/go-zookeeper/zk"
)

// refusals are answers that asking again will not change, and what to do about
// them. All others say nothing about the command: the connection broke, the ensemble
// elects a leader, a server restarts.
var refusals = map[error]string{
	zk.ErrNoAuth:     "", // the error says which right is missing
	zk.ErrAuthFailed: "the server refuses how the client says who it is: ",
	zk.ErrInvalidACL: "the server refuses the ACL: it names a scheme that the server does not know, " +
		"or users before any Digest is given: ",
	zk.ErrInvalidPath: "this is no path that ZooKeeper takes: use another Prefix: ",
	zk.ErrNoChildrenForEphemerals: "the Prefix leads through an ephemeral node, which has no children: " +
		"use another Prefix: ",
	zk.ErrBadArguments: "the server refuses the request: the Prefix may be reserved; use another one: ",
}

// refusal returns the advice on err if it is one of the refusals.
func refusal(err error) (advice string, ok bool) {
	if err.Error() == "unknown error: -6" { // so zk.Conn reports a request that the server does not know
		return "the server does not know container nodes: use ZooKeeper 3.5.3 or newer: ", true
	}
	for refusal, advice := range refusals {
		if errors.Is(err, refusal) {
			return advice, true
		}
	}
	return "", false
}

// failed explains an error of one request.
func failed(ctx context.Context, doing, key string, err error) error {
	if err == nil || isContract(err) {
		return err
	}
	what := fmt.Sprintf("zookeeper: %s %q", doing, key)
	if ended := context.Cause(ctx); ended != nil && !errors.Is(err, ended) {
		return fmt.Errorf("%s: %w (%w)", what, ended, err)
	}
	if advice, ok := refusal(err); ok {
		return &driver.PermanentError{Err: fmt.Errorf("%s: %s%w", what, advice, err)}
	}
	return fmt.Errorf("%s: %w", what, err)
}

// isAnswer reports whether err is the server's own word on what was asked. After
// any other error nobody knows whether the request was applied, or still will be.
func isAnswer(err error) bool {
	_, refused := refusal(err)
	return refused || errors.Is(err, zk.ErrNoNode) || errors.Is(err, zk.ErrNodeExists) ||
		errors.Is(err, zk.ErrBadVersion) || errors.Is(err, zk.ErrNotEmpty)
}

// Why a claim ended.
var (
	goneLeft    = driver.ErrGone{Reason: "it has left"}
	goneSession = driver.ErrGone{Reason: "the ZooKeeper session expired"}
	goneLease   = driver.ErrGone{Reason: "its lease ended"}
	goneDeleted = driver.ErrGone{Reason: "its node was deleted"}

	// errNoSession says that a session ended in the middle of a step.
	errNoSession = errors.New("the session ended meanwhile")
	// errUnresolved says that it is not known yet whether a claim is in line.
	errUnresolved = errors.New("its Enter has not been answered yet")
)

// isContract reports whether err is one of the contract's own answers.
func isContract(err error) bool {
	return driver.Gone(err) || errors.Is(err, driver.ErrKind) || errors.Is(err, driver.ErrClosed) ||
		errors.As(err, new(*driver.BusyError)) || errors.As(err, new(*driver.PermanentError))
}

// explain says which right a request lacks, one that ZooKeeper has answered with zk.ErrNoAuth:
// the answer names neither the permission nor the node.
func explain(err error, request any) error {
	var verb, permission, node string
	switch r := request.(type) {
	case *zk.CreateRequest:
		verb, permission, node = "create nodes in", "c", path.Dir(r.Path)
	case *zk.DeleteRequest:
		verb, permission, node = "delete nodes in", "d", path.Dir(r.Path)
	case *zk.SetDataRequest:
		verb, permission, node = "write to", "w", r.Path
	case *zk.CheckVersionRequest:
		verb, permission, node = "read", "r", r.Path
	}
	if node == "" || !errors.Is(err, zk.ErrNoAuth) {
		return err
	}
	return fmt.Errorf("this client may not %s %q: give it the Digest of a user who may, "+
		"or grant the permission %s in the ACL of %[2]q (%[4]w)", verb, node, permission, err)
}

// explainRead is explain for a request that reads.
func explainRead(err error, path string) error {
	return explain(err, &zk.CheckVersionRequest{Path: path})
}
