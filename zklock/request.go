package zklock

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/driverutil"
	"github.com/go-zookeeper/zk"
)

// do runs one call of a Backend, with the current session. Its context ends with Close, too.
func do[T any](
	ctx context.Context, b *Backend, doing, key string, f func(ctx context.Context, s *session) (T, error),
) (t T, err error) {
	switch ended := driverutil.Ended(ctx); {
	case b.ctx.Err() != nil:
		return t, driver.ErrClosed
	case ended != nil:
		return t, ended
	case b.invalid != nil:
		return t, driver.Permanent(b.invalid)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(b.ctx, func() { cancel(driver.ErrClosed) })()
	if !b.strays.room(ctx) {
		return t, failed(ctx, doing, key, fmt.Errorf("%w: %w", context.Cause(ctx), errSilent))
	}
	t, err = detached(ctx, b.strays, func() (t T, err error) {
		s, err := b.session(ctx)
		if err != nil {
			return t, err
		}
		return f(ctx, s)
	})
	if b.ctx.Err() != nil && errors.Is(err, goneSession) { // Close has ended it
		return t, driver.ErrClosed
	}
	if why := b.crowd.err(); err != nil && why != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", err, why)
	}
	return t, failed(ctx, doing, key, err)
}

// detached runs f on a goroutine of its own, because the methods of zk.Conn take no context:
// each waits until the server answers, the connection breaks, or the zk.Conn is closed; while
// nothing is connected, requests wait in a queue. Where ctx ends first, f goes on by itself,
// and its outcome is unknown.
func detached[T any](ctx context.Context, s strays, f func() (T, error)) (T, error) {
	var t, none T
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		t, err = f()
	}()
	select {
	case <-done:
		return t, err
	case <-ctx.Done():
		s.add(done)
		return none, context.Cause(ctx)
	}
}

// strays are the calls that go on by themselves. Each has a goroutine. While there are maxStrays,
// further calls wait: a server that swallows what is sent answers none of them for seconds, and
// at 1,000 calls a second there would be tens of thousands.
type strays chan struct{}

const maxStrays = 256

var errSilent = fmt.Errorf("the server has not answered %d calls yet", maxStrays)

// room waits until there is room for one more. It returns false if ctx ends first.
func (s strays) room(ctx context.Context) bool {
	select {
	case s <- struct{}{}:
		<-s
		return true
	case <-ctx.Done():
		return false
	}
}

// add counts a stray until done is closed. More than maxStrays are not counted.
func (s strays) add(done <-chan struct{}) {
	select {
	case s <- struct{}{}:
		go func() {
			<-done
			<-s
		}()
	default:
	}
}

func (s *session) children(path string) ([]string, *zk.Stat, error) {
	names, stat, err := s.zk.Children(path)
	return names, stat, explainRead(err, path)
}

func (s *session) get(path string) ([]byte, *zk.Stat, error) {
	data, stat, err := s.zk.Get(path)
	return data, stat, explainRead(err, path)
}

// sync has the server catch up with the leader before it answers what is asked next.
func (s *session) sync() error {
	_, err := s.zk.Sync(s.b.prefix + linesDir)
	return err
}

func (s *session) create(path string, flags int32) error {
	create := s.zk.Create
	if flags == zk.FlagContainer {
		create = s.zk.CreateContainer
	}
	_, err := create(path, formatData, flags, s.b.acl)
	return explain(err, &zk.CreateRequest{Path: path})
}

// multi does ops in one transaction.
func (s *session) multi(ops ...any) ([]zk.MultiResponse, error) {
	rs, err := s.send(ops...)
	if at := firstFailed(rs); at >= 0 && at < len(ops) {
		err = explain(err, ops[at])
	}
	return rs, err
}

// firstFailed returns which operation made a transaction fail, or -1.
func firstFailed(rs []zk.MultiResponse) int {
	return slices.IndexFunc(rs, func(r zk.MultiResponse) bool { return r.Error != nil })
}

// A refusal is an answer by which a server has not done what was asked.
type refusal struct {
	advice string
	forNow bool // it may change without another request
}

// refusals are the answers of which it is known that nothing was done. All others say nothing
// about the command: the connection broke, the ensemble elects a leader, a server restarts.
var refusals = map[error]refusal{
	zk.ErrNoAuth:     {}, // the error says which right is missing
	zk.ErrAuthFailed: {advice: "the server refuses how the client says who it is: "},
	zk.ErrInvalidACL: {advice: "the server refuses the ACL: it names a scheme that the server does not know, " +
		"or users before any Digest is given: "},
	zk.ErrInvalidPath: {advice: "this is no path that ZooKeeper takes: use another Prefix: "},
	zk.ErrNoChildrenForEphemerals: {advice: "the Prefix leads through an ephemeral node, which has no children: " +
		"use another Prefix: "},
	zk.ErrBadArguments: {advice: "the server refuses the request: the Prefix may be reserved; use another one: "},
	zk.ErrSessionMoved: {forNow: true},
	errCrowded:         {forNow: true},
}

// refusalCodes are refusals by how zk.Conn reports codes that it does not know.
var refusalCodes = map[string]refusal{
	"unknown error: -6": {advice: "the server does not know container nodes: use ZooKeeper 3.5.3 or newer: "},
	"unknown error: -124": {advice: "the server admits only clients that say who they are in a way that it is set " +
		"to (enforce.auth.schemes): give the client a Digest, or admit digest: "},
	"unknown error: -125": {forNow: true, advice: "the quota of the Prefix, or above it, is used up: raise it: "},
	"unknown error: -127": {forNow: true, advice: "the server is overloaded and throttles requests: "},
}

// refusalOf returns the refusal that err is, if it is one.
func refusalOf(err error) (r refusal, ok bool) {
	for code, r := range refusalCodes {
		if err != nil && strings.HasSuffix(err.Error(), code) {
			return r, true
		}
	}
	for answer, r := range refusals {
		if errors.Is(err, answer) {
			return r, true
		}
	}
	return refusal{}, false
}

// unsureError is the error of a step of several requests, of which one before the last has
// changed something.
type unsureError struct{ error }

func (e unsureError) Unwrap() error { return e.error }

// failed explains an error of one request.
func failed(ctx context.Context, doing, key string, err error) error {
	if err == nil || isContract(err) {
		return err
	}
	what := fmt.Sprintf("zookeeper: %s %q", doing, key)
	if ended := context.Cause(ctx); ended != nil {
		if errors.Is(err, ended) {
			return fmt.Errorf("%s: %w", what, err)
		}
		return fmt.Errorf("%s: %w (%w)", what, ended, err)
	}
	r, refused := refusalOf(err)
	told := fmt.Errorf("%s: %s%w", what, r.advice, err)
	switch {
	case !refused:
		return told
	case r.forNow:
		told = driver.Refused(told)
	default:
		told = driver.Permanent(told)
	}
	if errors.As(err, new(unsureError)) {
		return driverutil.Unsettled(told)
	}
	return told
}

// isAnswer reports whether err is the server's own word on what was asked, and will not change.
// After any other error but a refusal the outcome of the request is unknown.
func isAnswer(err error) bool {
	r, refused := refusalOf(err)
	return refused && !r.forNow || errors.Is(err, zk.ErrNoNode) || errors.Is(err, zk.ErrNodeExists) ||
		errors.Is(err, zk.ErrBadVersion) || errors.Is(err, zk.ErrNotEmpty)
}

// Why a claim ended.
var (
	goneLeft    = driver.GoneError{Reason: "it has left"}
	goneSession = driver.GoneError{Reason: "the ZooKeeper session expired"}
	goneLease   = driver.GoneError{Reason: "its lease ended"}
	goneDeleted = driver.GoneError{Reason: "its node was deleted"}

	// errNoSession says that a session ended in the middle of a step.
	errNoSession = errors.New("the session ended meanwhile")
	// errUnresolved says that it is not known yet whether a claim is in line.
	errUnresolved = errors.New("its Enter has not been answered yet")
)

// isContract reports whether err is one of the contract's own answers.
func isContract(err error) bool {
	return errors.As(err, new(driver.GoneError)) || errors.As(err, new(*driver.BusyError)) ||
		errors.Is(err, driver.ErrKind) || errors.Is(err, driver.ErrGranted) || errors.Is(err, driver.ErrClosed) ||
		errors.Is(err, driver.ErrPermanent)
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
