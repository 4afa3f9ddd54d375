package storeurl

import (
	"cmp"
	"context"
	"net"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/ballot"
)

// Config changes how a store is opened. The zero value suits a process that holds one
// lock.
type Config struct {
	// Dial makes every connection to a server. Nil dials the server itself. MySQL and
	// ZooKeeper ignore it.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// DialTimeout bounds each attempt to connect. Zero is the default of the client library.
	DialTimeout time.Duration
	// MaxConns bounds the connections to a database server. Zero means 2. PostgreSQL has one more
	// for notifications while somebody waits or holds, but with 1 it has none, and is polled.
	// With 1, a client of Redis keeps one connection open between requests, and one for notifications.
	MaxConns int
	// Prepare lets PostgreSQL prepare statements. It saves time in a process that asks often,
	// and not every pooler allows it.
	Prepare bool
	// SessionTimeout is ZooKeeper's: a crashed process keeps its locks for as long. Zero is
	// the default of zklock.
	SessionTimeout time.Duration
	// Membership is what the members of a quorum promise. Parameters of the URL replace it.
	Membership ballot.Membership

	member bool // the store opened is one member of a quorum
}

// of is the Membership of a member, and nil for a store that stands alone.
func (c *Config) of() *ballot.Membership {
	if !c.member {
		return nil
	}
	return &c.Membership
}

func (c *Config) maxConns() int {
	if c.MaxConns == 0 {
		return 2
	}
	return c.MaxConns
}

// oneConn has a Redis client of one command keep one connection open between requests, unless the URL says otherwise:
// go-redis has a pool of its own for pipelines.
func (c *Config) oneConn(maxIdle, pipelines *int) {
	if c.MaxConns == 1 {
		*maxIdle, *pipelines = cmp.Or(*maxIdle, 1), cmp.Or(*pipelines, -1)
	}
}

// Store is an open store.
type Store struct {
	Backend driver.Backend

	ping     func(ctx context.Context) error
	failover func(ctx context.Context) time.Duration // nil: Backend knows
	close    func()                                  // closes what Backend works on
	bridged  []*Store                                // the old and the new one, of a bridge
}

// Open opens the store. It does not ask whether a server answers: Ping does.
func (u *URL) Open(ctx context.Context, c Config) (*Store, error) {
	if u.format != "" {
		return u.openFormat(ctx, &c)
	}
	return u.scheme.open(ctx, u, &c)
}

// Ping asks the store once. The error is a *DeniedError or a *ConfigError where asking
// again is of no use.
func (s *Store) Ping(ctx context.Context) error {
	err := s.ping(ctx)
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// Failover returns how long sentinels take to replace a master that died, by their settings; 0
// if they do not answer, and for other stores. Package doctor takes it. It costs one round
// trip.
func (s *Store) Failover(ctx context.Context) time.Duration {
	if s.failover == nil {
		return 0
	}
	return s.failover(ctx)
}

// Close closes the backend and what it works on.
func (s *Store) Close() {
	_ = s.Backend.Close()
	s.close()
}

// pingKey is a key that Ping may read. It holds no lock.
const pingKey = "fencelock/ping"

// readLine is a Ping: it reads the line of one key.
func readLine(b driver.Backend) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := b.Line(ctx, pingKey)
		return err
	}
}
