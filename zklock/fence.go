package zklock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/fence"
	"github.com/go-zookeeper/zk"
)

// DefaultFencePrefix is where marks are kept if FenceOptions do not say otherwise.
const DefaultFencePrefix = "/fence"

// FenceOptions change how marks are kept. Nil and the zero value are ready for use.
type FenceOptions struct {
	// Prefix is the node below which all marks are, a path; DefaultFencePrefix if
	// empty. It is made if it is not there. All programs that write the same data use
	// the same one.
	Prefix string

	// ACL says who may do what with marks. If it is nil, everybody may do everything.
	ACL []zk.ACL
}

// Conn is what a Fence needs of a *zk.Conn.
type Conn interface {
	Create(path string, data []byte, flags int32, acl []zk.ACL) (string, error)
	Get(path string) ([]byte, *zk.Stat, error)
	Multi(ops ...any) ([]zk.MultiResponse, error)
}

var _ Conn = (*zk.Conn)(nil)

// Fence writes data to ZooKeeper for holders of locks, and refuses those whose token
// is stale with an error that matches [fence.ErrStale]. The lock may be in any
// store; its grant must be exclusive. Package fence says what all guards have in
// common.
//
// For each resource it keeps the largest token seen, its mark, in a node of its own.
// Marks stay until somebody deletes them. Every write to the resource must go
// through a Fence.
//
// Its methods may be called from many goroutines at once.
type Fence struct {
	conn    Conn
	prefix  string
	acl     []zk.ACL
	invalid error
}

// NewFence returns a Fence that writes with conn, which stays the caller's to close.
// A bad option is the answer to the first write.
func NewFence(conn Conn, o *FenceOptions) *Fence {
	if o == nil {
		o = &FenceOptions{}
	}
	f := &Fence{conn: conn, prefix: cmp.Or(o.Prefix, DefaultFencePrefix), acl: o.ACL}
	if f.acl == nil {
		f.acl = zk.WorldACL(zk.PermAll)
	}
	if f.invalid = checkPrefix(f.prefix); conn == nil {
		f.invalid = errors.New("zookeeper: there is no connection")
	}
	return f
}

// maxFenceTries is how often a write is tried again because another write of the resource was
// faster. Each time another write has succeeded.
const maxFenceTries = 100

// Do does ops, as for [zk.Conn.Multi], in one transaction if no larger token was seen
// for resource, and answers an ErrStale that says which one if it was; then nothing
// is done. There is a response for each of ops, in their order.
//
// It costs two round trips, and two more each time another writer of the same resource
// came in between. A request that is under way when ctx ends goes on by itself. After an
// error that is no answer of the server the transaction may have been done or not, and
// may be sent again with the same token.
//
// The Prefix and all nodes below it belong to marks. An operation that would create,
// change or delete one of them is refused before anything is sent: it could undo the
// mark that its own transaction raises, and let a stale holder write.
func (f *Fence) Do(ctx context.Context, resource string, token fence.Token, ops ...any) ([]zk.MultiResponse, error) {
	switch {
	case f.invalid != nil:
		return nil, f.invalid
	case resource == "":
		return nil, errors.New("zookeeper: a fenced write names no resource")
	case token <= 0:
		return nil, fmt.Errorf("zookeeper: write %q: %w: pass the token of the lease under which this is written",
			resource, fence.ErrNoToken)
	}
	for i, op := range ops {
		if node := changes(op); f.keeps(node) {
			return nil, fmt.Errorf("zookeeper: write %q: operation %d changes %q, but %q and all nodes below "+
				"belong to the fence: keep the data elsewhere, or give the fence another Prefix",
				resource, i+1, node, f.prefix)
		}
	}
	rs, err := detached(ctx, nil, func() ([]zk.MultiResponse, error) { return f.do(ctx, resource, token, ops) })
	if err != nil && !errors.Is(err, fence.ErrStale) {
		err = fmt.Errorf("zookeeper: write %q: %w", resource, err)
	}
	return rs, err
}

func (f *Fence) do(ctx context.Context, resource string, token fence.Token, ops []any) ([]zk.MultiResponse, error) {
	for range maxFenceTries {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		raise, err := f.raise(resource, token)
		if err != nil {
			return nil, err
		}
		rs, err := f.conn.Multi(append([]any{raise}, ops...)...)
		switch {
		case err == nil:
			return rs[1:], nil
		case len(rs) == 0 || rs[0].Error == nil:
			return nil, err // the mark was as it was read: one of ops failed, or nobody answered
		case errors.Is(rs[0].Error, zk.ErrNodeExists), errors.Is(rs[0].Error, zk.ErrBadVersion):
		case errors.Is(rs[0].Error, zk.ErrNoNode):
			if err := makePath(f.conn, f.prefix, nil, f.acl); err != nil {
				return nil, err
			}
		default:
			return nil, rs[0].Error
		}
	}
	return nil, fmt.Errorf("%d others were faster, one after the other: try again", maxFenceTries)
}

// raise returns the operation that raises the mark of resource to token, if the mark is
// still as it was read.
func (f *Fence) raise(resource string, token fence.Token) (any, error) {
	mark, text := f.Mark(resource), []byte(token.String())
	data, stat, err := f.conn.Get(mark)
	if errors.Is(err, zk.ErrNoNode) {
		return &zk.CreateRequest{Path: mark, Data: text, Acl: f.acl}, nil
	}
	if err != nil {
		return nil, err
	}
	seen, err := fence.Parse(string(data))
	if err != nil {
		return nil, fmt.Errorf("its mark %q holds %.40q, which is no token: give marks another Prefix, "+
			"or delete it when no former holder can be left", mark, data)
	}
	if token < seen {
		return nil, &fence.StaleError{Resource: resource, Token: token, Seen: seen}
	}
	return &zk.SetDataRequest{Path: mark, Data: text, Version: stat.Version}, nil
}

// changes returns the node that op creates, writes or deletes; "" if it changes none.
func changes(op any) string {
	switch op := op.(type) {
	case *zk.CreateRequest:
		return op.Path
	case *zk.SetDataRequest:
		return op.Path
	case *zk.DeleteRequest:
		return op.Path
	}
	return ""
}

// keeps reports whether node is the Prefix or lies below it, in any spelling: a server
// that is more lenient than ours might take "/fence//r" for "/fence/r".
func (f *Fence) keeps(node string) bool {
	return node != "" && strings.HasPrefix(path.Clean("/"+node)+"/", f.prefix+"/")
}

// Mark returns the node of the mark of resource: the largest token seen, in decimal.
// To forget a resource that nobody will ever write again, delete its mark.
func (f *Fence) Mark(resource string) string { return f.prefix + "/" + segment.Escape(resource) }

// Holding returns a condition for transactions of yours that is true as long as the
// exclusive grant with this token holds key, and false forever afterwards:
//
//	still, err := backend.Holding(ctx, lease.Key(), lease.Token())
//	…
//	_, err = conn.Multi(still, &zk.SetDataRequest{Path: "/config", Data: text, Version: -1})
//
// A Multi that fails with zk.ErrNoNode in its first response was refused. The condition
// needs no marks, and refuses a holder whose session has ended even if nobody has come after
// it. The lock and the data must be in the same ensemble. Goroutines of one Client that hand
// a claim on to each other share it: set HandOff to 1 in the Client's Options, or use a
// [Fence], where that matters.
//
// If the grant is over already the error matches [fence.ErrStale]. It costs two round trips.
func (b *Backend) Holding(ctx context.Context, key string, token fence.Token) (*zk.CheckVersionRequest, error) {
	if token <= 0 {
		return nil, fmt.Errorf("zookeeper: the holder of %q: %w: pass the token of its lease", key, fence.ErrNoToken)
	}
	const doing = "looking for the holder of"
	return do(ctx, b, doing, key, func(_ context.Context, s *session) (*zk.CheckVersionRequest, error) {
		f, _, err := b.findToken(s, key, int64(token))
		if errors.Is(err, zk.ErrNoNode) || err == nil && (f.capacity != driver.RW || f.weight != driver.RW) {
			err = &fence.StaleError{Resource: key, Token: token}
		}
		if err != nil {
			return nil, err
		}
		// A node of that name is never made again: the claim's ID is drawn once.
		return &zk.CheckVersionRequest{Path: f.path, Version: -1}, nil
	})
}
