package zklock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/go-zookeeper/zk"
)

// What Options say if they say nothing.
const (
	DefaultPrefix         = "/fencelock"
	DefaultSessionTimeout = 45 * time.Second
)

// Options change how locks are kept. Nil and the zero value are ready for use.
type Options struct {
	// Prefix is the node below which everything is kept, a path; DefaultPrefix if
	// empty. All programs that share locks use the same one. It is made if it is
	// not there.
	Prefix string

	// SessionTimeout is asked for; DefaultSessionTimeout if zero. The server has
	// the last word: by default it grants 2 to 20 of its ticks, 4 to 40 seconds.
	// Leases last two thirds of what it grants, at most. A process that crashes
	// keeps its locks for all of it, whatever their TTL.
	SessionTimeout time.Duration

	// Digest is "user:password", if the server is to know who this is. It is sent
	// in clear text.
	Digest string

	// ACL says who may do what with the nodes that are made. If it is nil, those
	// who know the Digest may do everything and others nothing; without a Digest,
	// everybody may do everything.
	ACL []zk.ACL
}

// minTTL is the shortest lease. The client keeps it, by writing.
const minTTL = 100 * time.Millisecond

// Backend keeps lines of claims in ZooKeeper. Its methods may be called from many
// goroutines at once.
//
// It has one connection and one session, which begin with the first call and end
// with Close. All its claims live and die with the session.
type Backend struct {
	prefix  string
	timeout time.Duration
	digest  string
	acl     []zk.ACL
	invalid error // what is wrong with the Options

	link      link
	closed    chan struct{}
	closeOnce sync.Once
	work      context.Context // ends with Close
	stop      context.CancelFunc
	group     sync.WaitGroup

	mu     sync.Mutex
	places map[ref]*place
	rests  map[ref]*rest
	known  map[string]container // lines that were there a short while ago
	pruned time.Time            // when known was last cleared of those that were so too long ago
}

var (
	_ driver.Backend    = (*Backend)(nil)
	_ driver.LineReader = (*Backend)(nil)
)

// New returns a backend that keeps its locks in the ensemble of servers, each
// written as host or host:port. It connects with the first call: bad Options, or no
// servers, are the answer to that.
//
// The user of the connection needs the rights to create, read, write and delete
// below the Prefix, and to make the Prefix if it is not there.
func New(servers []string, o *Options) *Backend {
	if o == nil {
		o = &Options{}
	}
	b := &Backend{
		prefix: o.Prefix, timeout: o.SessionTimeout, digest: o.Digest, acl: o.ACL,
		closed: make(chan struct{}),
		places: make(map[ref]*place), rests: make(map[ref]*rest), known: make(map[string]container),
	}
	b.work, b.stop = context.WithCancel(context.Background())
	if b.prefix == "" {
		b.prefix = DefaultPrefix
	}
	if b.timeout == 0 {
		b.timeout = DefaultSessionTimeout
	}
	if b.acl == nil {
		b.acl = zk.WorldACL(zk.PermAll)
		if b.digest != "" {
			b.acl = zk.AuthACL(zk.PermAll)
		}
	}
	switch {
	case len(servers) == 0:
		b.invalid = errors.New("zookeeper: there are no servers: name at least one, as host:port")
	case b.timeout < minTTL*3/2 || b.timeout > 24*time.Hour:
		b.invalid = fmt.Errorf("zookeeper: a session timeout of %v is not possible: use %v to %v", b.timeout, minTTL*3/2, 24*time.Hour)
	default:
		b.invalid = checkPrefix(b.prefix)
	}
	b.link.init(servers, b.timeout, b.digest != "", b.sessionLost)
	return b
}

// Info says what the backend promises: everything but ballots, and Linger. To count
// on after its holder's process has ended, a claim would need a node that the
// server deletes by its own clock; ZooKeeper has them (TTL nodes), but only where
// the administrator has enabled extended types, and to the minute.
func (b *Backend) Info() driver.Info {
	return driver.Info{
		Name:      "zookeeper",
		Fair:      true,
		Fencing:   true,
		Mark:      true,
		Semaphore: true,
		Push:      true,
		Lease:     driver.PerClient,
		MinTTL:    minTTL,
		MaxTTL:    max(minTTL, b.timeout*2/3),
	}
}

// Connect connects and begins the session, as the first call does otherwise. It is for
// programs that want to know early whether the servers answer and the rights suffice.
func (b *Backend) Connect(ctx context.Context) error {
	if err := b.ready(ctx); err != nil {
		return err
	}
	_, _, err := b.live(ctx)
	return failed(ctx, "preparing the prefix", b.prefix, err)
}

// Close ends the connection, and every call with ErrClosed. The session ends with it
// if no claim is in line; otherwise it is left to run out, and the claims with it.
func (b *Backend) Close() error {
	b.closeOnce.Do(func() {
		b.mu.Lock()
		inLine := 0
		for _, p := range b.places {
			if p.path != "" || p.unsure != nil || p.pending {
				inLine++
			}
			p.stopTimer()
		}
		b.mu.Unlock()
		close(b.closed)
		b.stop()
		b.link.close(inLine > 0)
		b.group.Wait()
	})
	return nil
}

// ready says whether a call may be made.
func (b *Backend) ready(ctx context.Context) error {
	select {
	case <-b.closed:
		return driver.ErrClosed
	default:
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if b.invalid != nil {
		return &driver.PermanentError{Err: b.invalid}
	}
	return nil
}

// background runs f on a goroutine that Close waits for; ctx ends with Close.
func (b *Backend) background(f func(ctx context.Context)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.work.Err() != nil {
		return
	}
	b.group.Go(func() { f(b.work) })
}

// check refuses what the core never sends.
func check(c *driver.Claim) error {
	switch {
	case c.Key == "" || len(c.Key) > driver.MaxKey:
		return fmt.Errorf("zookeeper: a key has 1 to %d bytes, not %d", driver.MaxKey, len(c.Key))
	case c.ID == "" || len(c.ID) > 256:
		return fmt.Errorf("zookeeper: the claim on %q has an id of %d bytes", c.Key, len(c.ID))
	case c.Capacity < 1 || c.Capacity > driver.RW || c.Weight < 1 || c.Weight > c.Capacity:
		return fmt.Errorf("zookeeper: a claim on %q cannot have weight %d of %d", c.Key, c.Weight, c.Capacity)
	case c.TTL < time.Millisecond:
		return fmt.Errorf("zookeeper: the lease on %q must last longer than %v", c.Key, c.TTL)
	case c.Span < 1 || c.Span > driver.MaxSpan:
		return fmt.Errorf("zookeeper: a claim on %q reserves 1 to %d tokens, not %d", c.Key, driver.MaxSpan, c.Span)
	case c.Ballot != 0:
		return fmt.Errorf("zookeeper: no ballots are taken, as for %q", c.Key)
	}
	return nil
}
