package zklock

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/driverutil"
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
	// in clear text without TLS.
	Digest string

	// TLS encrypts the connections, unless it is nil. The port of each server is then its
	// secureClientPort. An empty ServerName stands for each server's own host.
	TLS *tls.Config

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
	servers []string
	prefix  string
	digest  string
	tls     *tls.Config
	acl     []zk.ACL
	timeout time.Duration // the session timeout to ask for
	maxTTL  time.Duration
	invalid error // what is wrong with the Options
	owner   driverutil.Ownership

	claims     claims
	containers containers
	crowd      *crowd
	alarms     driverutil.Alarms
	strays     strays

	// Close ends ctx and waits for tasks. No task and no session begins after that.
	ctx    context.Context
	cancel context.CancelFunc
	tasks  sync.WaitGroup
	mu     sync.Mutex
	newest *session // nil before the first call
}

var _ driver.Backend = (*Backend)(nil)

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
		servers: servers, prefix: cmp.Or(o.Prefix, DefaultPrefix), digest: o.Digest, acl: o.ACL, tls: o.TLS,
		timeout: cmp.Or(o.SessionTimeout, DefaultSessionTimeout),
	}
	switch {
	case b.acl == nil && b.digest != "":
		b.acl = zk.AuthACL(zk.PermAll)
	case b.acl == nil:
		b.acl = zk.WorldACL(zk.PermAll)
	}
	const shortest, longest = minTTL * 3 / 2, 24 * time.Hour
	switch {
	case len(servers) == 0:
		b.invalid = errors.New("zookeeper: there are no servers: name at least one, as host:port")
	case b.timeout < shortest || b.timeout > longest:
		b.invalid = fmt.Errorf("zookeeper: a session timeout of %v is not possible: use %v to %v",
			b.timeout, shortest, longest)
	default:
		b.invalid = checkPrefix(b.prefix)
	}
	b.maxTTL = max(minTTL, b.timeout*2/3)
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.claims = claims{b: b, byRef: make(map[driverutil.ClaimRef]*claim)}
	b.crowd = crowdOf(servers)
	b.strays = make(strays, maxStrays)
	b.containers.byKey = make(map[string]container)
	return b
}

// Open takes the backend over for one Client, and says which of the Options is bad.
func (b *Backend) Open() error { return b.owner.Take(b.invalid) }

// Info says what the backend promises: everything but ballots, and Linger. A claim that
// lingers would need a node that the server deletes by its own clock. ZooKeeper has such
// TTL nodes only where the administrator has enabled extended types, and to the minute.
func (b *Backend) Info() driver.Info {
	return driver.Info{
		Name:        "zookeeper",
		Fair:        true,
		SharedLease: true,
		MinTTL:      minTTL,
		MaxTTL:      b.maxTTL,
	}
}

// Connect begins the session, as the first call does otherwise. It is for programs that
// want to know early whether the servers answer and the rights suffice.
func (b *Backend) Connect(ctx context.Context) error {
	_, err := do(ctx, b, "preparing the prefix", b.prefix, func(context.Context, *session) (any, error) {
		return nil, nil
	})
	return err
}

// Close ends the connection, and every call with ErrClosed. The session ends with it
// if no claim is in line; otherwise it is left to run out, and the claims with it.
func (b *Backend) Close() error {
	b.mu.Lock()
	b.cancel()
	s := b.newest
	b.mu.Unlock()
	if s != nil {
		if !b.claims.anyInLine() {
			s.zk.Close()
		}
		s.end()
	}
	b.tasks.Wait()
	return nil
}

// run runs f in the background; its context ends with Close.
func (b *Backend) run(f func(ctx context.Context)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ctx.Err() == nil {
		b.tasks.Go(func() { f(b.ctx) })
	}
}

// deleteLater tries once, in the background, to delete a node.
func (b *Backend) deleteLater(s *session, node string) {
	b.run(func(context.Context) { _, _ = s.multi(&zk.DeleteRequest{Path: node, Version: -1}) })
}
