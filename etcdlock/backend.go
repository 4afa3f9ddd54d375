package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock/driver"
)

// DefaultPrefix is where locks are kept if Options do not say otherwise.
const DefaultPrefix = "fencelock/"

// maxPrefix keeps the longest key far below what etcd takes.
const maxPrefix = 512

// Options change how locks are kept. Nil and the zero value are ready for use.
type Options struct {
	// Prefix is what all keys begin with; DefaultPrefix if empty. All programs that
	// share locks use the same one. No prefix in use may begin with another one.
	Prefix string
}

// What Info says of leases. A server with its default election timeout grants no
// shorter lease than this.
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

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	mu     sync.Mutex     // guards what follows
	calls  sync.WaitGroup // under way; Add is called under mu
	closed bool
	gone   chan struct{} // closed when Close is done; nil before
	leases leases
	vigils map[place]*vigil
	asked  map[*call]struct{} // the calls under way

	crowded map[lineKeys]struct{} // lines that had something in them the last time

	slots slots
}

var (
	_ driver.Backend    = (*Backend)(nil)
	_ driver.LineReader = (*Backend)(nil)
)

// New returns a backend that keeps its locks in etcd, a client that stays the
// caller's to close. It asks the server nothing yet: bad Options are the answer to
// the first call.
func New(etcd *clientv3.Client, o *Options) *Backend {
	if o == nil {
		o = &Options{}
	}
	b := &Backend{
		etcd: etcd, prefix: o.Prefix, vigils: make(map[place]*vigil), asked: make(map[*call]struct{}), crowded: make(map[lineKeys]struct{}),
	}
	if b.prefix == "" {
		b.prefix = DefaultPrefix
	}
	b.leases.init()
	b.slots.init()
	b.ctx, b.cancel = context.WithCancel(context.Background())
	switch {
	case etcd == nil:
		b.invalid = errors.New("etcd: there is no client")
	case len(b.prefix) > maxPrefix:
		b.invalid = fmt.Errorf("etcd: the prefix has %d bytes; the longest has %d", len(b.prefix), maxPrefix)
	}
	return b
}

// Info says what the backend promises: everything but ballots. Claims of one
// Backend share leases.
func (b *Backend) Info() driver.Info {
	return driver.Info{
		Name:      "etcd",
		Fair:      true,
		Fencing:   true,
		Linger:    true,
		Mark:      true,
		Semaphore: true,
		Push:      true,
		Lease:     driver.PerClient,
		MinTTL:    minTTL,
		MaxTTL:    maxTTL,
	}
}

// Close ends every call with ErrClosed, and every watch. It revokes the leases on
// which nothing hangs any more, for which it takes a second at most; the others
// end by themselves.
func (b *Backend) Close() error {
	b.mu.Lock()
	if b.closed {
		gone := b.gone
		b.mu.Unlock()
		<-gone
		return nil
	}
	b.closed = true
	b.gone = make(chan struct{})
	b.cancel()
	for c := range b.asked {
		c.end()
	}
	b.mu.Unlock()
	defer close(b.gone)

	// An Enter that is under way may hang a key on a lease that looks empty. Once it
	// has returned, nobody believes in what it may still do.
	b.calls.Wait()
	b.revokeIdle()
	return nil
}

// call is the context of one call: it ends with its caller's and with Close.
type call struct {
	context.Context
	end context.CancelFunc
}

// led asks a member that has lost the others to say so, instead of keeping the caller.
var led = clientv3.WithRequireLeader(context.Background())

// Value finds what the caller's ctx carries, and in the same place as that what led does.
func (c *call) Value(key any) any {
	wish := led.Value(key)
	if wish == nil {
		return c.Context.Value(key)
	}
	if c.Context.Value(key) != nil {
		return clientv3.WithRequireLeader(c.Context).Value(key)
	}
	return wish
}

// begin starts a call. Its context ends with ctx and with Close; end is to be
// called when the call is over.
func (b *Backend) begin(ctx context.Context) (_ context.Context, end func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	if b.invalid != nil {
		return nil, nil, &driver.PermanentError{Err: b.invalid}
	}
	c := &call{}
	c.Context, c.end = context.WithCancel(ctx)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		c.end()
		return nil, nil, driver.ErrClosed
	}
	b.calls.Add(1)
	b.asked[c] = struct{}{}
	return c, func() {
		c.end()
		b.mu.Lock()
		delete(b.asked, c)
		b.mu.Unlock()
		b.calls.Done()
	}, nil
}

// timeless is a context that ends as the one in it does, and does not say when. A client
// tells a member with each request how long it is going to wait, and the member sets a
// timer: a twentieth of the time that a free lock takes.
type timeless struct{ context.Context }

func (timeless) Deadline() (time.Time, bool) { return time.Time{}, false }
