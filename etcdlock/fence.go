package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock/etcdlock/internal/reply"
	"github.com/fencelock/fencelock/fence"
)

// DefaultFencePrefix is what marks begin with if FenceOptions do not say otherwise.
const DefaultFencePrefix = "fence/"

// FenceOptions change how marks are kept. Nil and the zero value are ready for use.
type FenceOptions struct {
	// Prefix is what the keys of all marks begin with; DefaultFencePrefix if empty.
	// All programs that write the same data use the same one.
	Prefix string
}

// Fence writes data to etcd for holders of locks, and refuses those whose token is
// stale with an error that matches [fence.ErrStale]. The lock may be in any store;
// its grant must be exclusive. Package fence says what all guards have in common.
//
// For each resource it keeps the largest token seen, its mark, in a key of its own.
// Marks stay until somebody deletes them. Every write to the resource must go
// through a Fence. The user needs readwrite permission for the marks besides.
//
// Its methods may be called from many goroutines at once.
type Fence struct {
	etcd   clientv3.KV
	prefix string
}

// NewFence returns a Fence that writes with etcd, a client that stays the caller's
// to close.
func NewFence(etcd clientv3.KV, o *FenceOptions) *Fence {
	f := &Fence{etcd: etcd, prefix: DefaultFencePrefix}
	if o != nil && o.Prefix != "" {
		f.prefix = o.Prefix
	}
	return f
}

// Do does ops in one transaction if no larger token was seen for resource, and
// answers an ErrStale that says which one if it was; then nothing is done. The
// response has a part for each of ops, in their order. A condition of yours goes
// into ops as [clientv3.OpTxn].
//
// It costs one round trip. An error other than ErrStale and ErrNoToken is the
// client's: the transaction may have been done or not, and may be sent again with
// the same token.
func (f *Fence) Do(ctx context.Context, resource string, token fence.Token, ops ...clientv3.Op,
) (*clientv3.TxnResponse, error) {
	switch {
	case f.etcd == nil:
		return nil, errors.New("etcd: there is no client")
	case resource == "":
		return nil, errors.New("etcd: a fenced write names no resource")
	case token <= 0:
		return nil, fmt.Errorf("etcd: write %q: %w: pass the token of the lease under which this is written",
			resource, fence.ErrNoToken)
	}
	// The server compares values as text, so they are of one length. A mark that is
	// not there is not larger than anything.
	mark, text := f.Mark(resource), fmt.Sprintf("%019d", int64(token))
	answer, err := f.etcd.Txn(ctx).
		If(clientv3.Compare(clientv3.Value(mark), ">", text)).
		Then(clientv3.OpGet(mark)).
		Else(append([]clientv3.Op{clientv3.OpPut(mark, text)}, ops...)...).
		Commit()
	if err != nil {
		return nil, fmt.Errorf("etcd: write %q: %w", resource, err)
	}
	if !answer.Succeeded {
		answer.Succeeded, answer.Responses = true, answer.Responses[1:]
		return answer, nil
	}
	value := answer.Responses[0].GetResponseRange().Kvs[0].Value // it is there, else it would not be larger
	seen, err := fence.Parse(strings.TrimLeft(string(value), "0"))
	if err != nil || len(value) != len(text) {
		return nil, fmt.Errorf("etcd: write %q: its mark %q holds %.40q, which is no token: give marks another "+
			"Prefix, or delete it when no former holder can be left", resource, mark, value)
	}
	return nil, &fence.StaleError{Resource: resource, Token: token, Seen: seen}
}

// Mark returns the key of the mark of resource: the largest token seen, in 19 digits.
// To forget a resource that nobody will ever write again, delete its mark.
func (f *Fence) Mark(resource string) string { return f.prefix + resource }

// Holding returns a condition for transactions of yours that is true as long as the
// exclusive grant with this token holds key, and false forever afterwards:
//
//	still, err := backend.Holding(ctx, lease.Key(), lease.Token())
//	…
//	answer, err := etcd.Txn(ctx).If(still).Then(clientv3.OpPut("config", text)).Commit()
//
// It needs no marks, and refuses a holder whose lease has ended even if nobody has
// come after it. In exchange the lock and the data must be in the same etcd, and it
// tells claims apart, not tokens: goroutines of one Client that hand a claim on to
// each other share it. Set HandOff to 1 in the Client's Options, or use a [Fence],
// where that matters. MinHold counts as holding.
//
// If the grant is over already the error matches [fence.ErrStale]. It costs one
// round trip; the condition can be used as often as you like.
func (b *Backend) Holding(ctx context.Context, key string, token fence.Token) (clientv3.Cmp, error) {
	if token <= 0 {
		return clientv3.Cmp{}, fmt.Errorf("etcd: the holder of %q: %w: pass the token of its lease",
			key, fence.ErrNoToken)
	}
	writers, rev := b.line(key).writers(), revisionOf(int64(token))
	var answer *clientv3.GetResponse
	err := b.call(ctx, reply.Read, "looking for the holder of", key, func(ctx context.Context) (err error) {
		answer, err = b.etcd.Get(ctx, writers.from, clientv3.WithRange(writers.end), clientv3.WithKeysOnly(),
			clientv3.WithMinCreateRev(rev), clientv3.WithMaxCreateRev(rev))
		return err
	})
	if err != nil {
		return clientv3.Cmp{}, err
	}
	if len(answer.Kvs) == 0 {
		return clientv3.Cmp{}, &fence.StaleError{Resource: key, Token: token}
	}
	return createdAt(string(answer.Kvs[0].Key), rev), nil
}
