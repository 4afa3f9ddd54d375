package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/etcdlock/internal/reply"
	"github.com/fencelock/fencelock/internal/driverutil"
)

// DefaultPrefix is where locks are kept if Options do not say otherwise.
const DefaultPrefix = "fencelock/"

// maxPrefix keeps the longest key far below etcd's own limit.
const maxPrefix = 512

// Options change how locks are kept. Nil and the zero value are ready for use.
type Options struct {
	// Prefix is what all keys begin with; DefaultPrefix if empty. All programs that
	// share locks use the same one. No prefix in use may begin with another one.
	Prefix string
}

// A server with its default election timeout grants no lease shorter than minTTL.
const (
	minTTL = 2 * time.Second
	maxTTL = 366 * 24 * time.Hour
)

// Backend keeps lines of claims in etcd. Its methods may be called from many
// goroutines at once.
type Backend struct {
	etcd    *clientv3.Client
	prefix  string
	invalid error // what is wrong with the Options
	owner   driverutil.Ownership

	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	running sync.RWMutex // read-locked by each call; Close waits for all of them

	leases leaseSet
	keys   keyPool
}

var _ driver.Backend = (*Backend)(nil)

// New returns a backend that keeps its locks in etcd, a client that stays the
// caller's to close. New sends no request: bad Options are the answer to the first
// call.
func New(etcd *clientv3.Client, o *Options) *Backend {
	b := &Backend{etcd: etcd, prefix: DefaultPrefix}
	if o != nil && o.Prefix != "" {
		b.prefix = o.Prefix
	}
	b.ctx, b.cancel = context.WithCancel(clientv3.WithRequireLeader(context.Background()))
	switch {
	case etcd == nil:
		b.invalid = errors.New("etcd: there is no client")
	case len(b.prefix) > maxPrefix:
		b.invalid = fmt.Errorf("etcd: the prefix has %d bytes; the longest has %d", len(b.prefix), maxPrefix)
	}
	return b
}

// Open takes the backend over for one Client, and says which of the Options is bad.
func (b *Backend) Open() error { return b.owner.Take(b.invalid) }

// Info says what the backend promises: everything but ballots. Claims of one
// Backend share leases.
func (b *Backend) Info() driver.Info {
	return driver.Info{
		Name:        "etcd",
		Namespace:   b.prefix,
		Fair:        true,
		Linger:      true,
		SharedLease: true,
		After:       true,
		MinTTL:      minTTL,
		MaxTTL:      maxTTL,
	}
}

// Close ends every call with ErrClosed. It revokes the leases that hold no key any more,
// for a second at most; the others end by themselves.
func (b *Backend) Close() error {
	b.cancel()
	// An Enter that is under way may put a key on a lease that looks idle. After it has
	// returned, no caller believes in that key.
	b.running.Lock()
	leases := b.leases.takeAll()
	b.running.Unlock()
	b.revokeIdle(leases)
	return nil
}

// untimed is a context that ends with the one in it, and does not say when. With a deadline
// both sides set a timer for the request, and BenchmarkFreeLock takes a quarter longer.
type untimed struct{ context.Context }

func (untimed) Deadline() (end time.Time, ok bool) { return time.Time{}, false }

// call runs f for one call of a Backend, and explains its error. The context of f ends with ctx
// and with Close, and asks for a member that knows a leader: another one would keep the request.
func (b *Backend) call(ctx context.Context, right reply.Right, doing, key string, f func(context.Context) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if b.invalid != nil {
		return driver.Permanent(b.invalid)
	}
	b.running.RLock()
	defer b.running.RUnlock()
	if b.ctx.Err() != nil {
		return driver.ErrClosed
	}
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	defer context.AfterFunc(b.ctx, cancel)()
	return b.explain(ctx, right, doing, key, f(ctx))
}
