package redislock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/ballot"
	"github.com/fencelock/fencelock/internal/driverutil"
	"github.com/redis/go-redis/v9"
)

// DefaultPrefix is where locks are kept if Options do not say otherwise.
const DefaultPrefix = "fencelock:"

// Options change how locks are kept. Nil and the zero value are ready for use.
type Options struct {
	// Prefix is what all keys and channels begin with; DefaultPrefix if empty. All
	// programs that share locks use the same one. It may hold a hash tag of its
	// own, as in "app:{locks}:", which puts all locks into one hash slot.
	Prefix string

	// Replicas is how many replicas each master is meant to have. If it is above
	// zero, Enter, Renew and a Leave with a mark succeed only when a majority of that
	// many have confirmed them, in the same request, by WAIT; an Enter that too few
	// confirm is taken back, at the cost of one request more, and its outcome is
	// unknown, like that of a request without an answer.
	//
	// This makes it unlikely that a replica which is promoted does not know of a grant.
	// It does not exclude it: the one promoted may be one of those that did not
	// confirm, and a replica that confirmed may have lost its memory since. Only what
	// compares tokens is safe from that.
	//
	// The number is given, not asked of the server: a master that is cut off from its
	// replicas would answer that it has none. The user of rdb needs the right +wait.
	Replicas int

	// ReplicaWait is how long replicas may take to confirm; one second if zero, and
	// never more than half of what is left of a call's time, or than what the client
	// waits for an answer.
	ReplicaWait time.Duration

	// Member opens the server as a node of a quorum (package quorumlock), which takes
	// ballots; &ballot.Membership{} will do. It is one server by itself, neither a
	// Cluster nor behind a Sentinel, and independent of the other members. A server
	// that was restarted grants nothing for Membership.MaxTTL unless Durable says that
	// it syncs each write (appendonly yes, appendfsync always). The user of rdb needs
	// the right +info besides.
	Member *ballot.Membership
}

// What Info says of leases.
const (
	minTTL = 100 * time.Millisecond
	maxTTL = 366 * 24 * time.Hour
)

// Backend keeps lines of claims in Redis. Its methods may be called from many
// goroutines at once.
//
// It has no goroutine and no connection of its own until a claim waits, or Alarm was called and a
// claim was granted; then it subscribes to one channel.
type Backend struct {
	rdb     redis.UniversalClient
	prefix  string
	channel string // of this process
	process string // the end of channel, which claims carry
	invalid error  // what is wrong with the Options
	owner   driverutil.Ownership
	member  *ballot.Membership // nil: of no quorum

	transport  *transport
	repeated   sync.Map // IDs of claims whose Enter was sent twice
	waiters    waiterRegistry
	subscriber subscriber
	alarms     driverutil.Alarms
	listens    atomic.Bool // for alarms
	fallback   time.Duration
}

var (
	_ driver.Backend  = (*Backend)(nil)
	_ driver.Reserver = (*Backend)(nil)
	_ driver.Alarm    = (*Backend)(nil)
	_ driver.Detacher = (*Backend)(nil)
)

// New returns a backend that keeps its locks in rdb, which stays the caller's to
// close. It asks the server nothing yet: bad Options are the answer to the first
// call. The hooks of rdb see some of the requests only.
//
// The user of rdb needs these rights, and no more:
//
//	ACL SETUSER locks on >password resetkeys ~fencelock:* resetchannels &fencelock:*
//	    +eval +evalsha +time +hget +hmget +hset +hdel +hgetall
//	    +get +set +pttl +exists +zadd +zrem +zrank +zcard +zrange +pexpireat +persist
//	    +publish +subscribe +ping +scan
//
// scan is for listing locks alone. A history needs +xadd +xdel +xrange +xrevrange. The
// client of a Cluster asks for +cluster|slots, +command, and +asking while a hash slot moves;
// one that reads from replicas for +readonly; Options.Replicas for +wait.
//
// In a Cluster, rdb may be told to read from replicas: locks are not read there.
func New(rdb redis.UniversalClient, o *Options) *Backend {
	if o == nil {
		o = &Options{}
	}
	b := &Backend{rdb: rdb, prefix: o.Prefix, fallback: fallback}
	if b.prefix == "" {
		b.prefix = DefaultPrefix
	}
	b.process = rand.Text()[:12]
	b.channel = b.prefix + "@" + b.process
	b.invalid = invalidOptions(rdb, b.prefix, o)
	if o.Member != nil {
		b.join(o)
	}
	b.waiters.byID = make(map[string]*waiter)
	b.transport = newTransport(rdb, o)
	b.subscriber.init(b)
	return b
}

// invalidOptions returns what is wrong with the arguments of New.
func invalidOptions(rdb redis.UniversalClient, prefix string, o *Options) error {
	switch i := strings.IndexByte(prefix, '{'); {
	case rdb == nil:
		return errors.New("redis: there is no client")
	case i >= 0 && strings.HasPrefix(prefix[i:], "{}"):
		// Cluster takes the first brace for the hash tag, and an empty one for none.
		return fmt.Errorf("redis: the prefix %q has an empty hash tag", prefix)
	case o.Replicas < 0 || o.ReplicaWait < 0:
		return errors.New("redis: Replicas and ReplicaWait are not negative")
	}
	if _, ring := rdb.(*redis.Ring); ring {
		return errors.New("redis: a Ring takes a lock to another server when its own does not answer, where another " +
			"client may get it: give each Backend one server, or use a Cluster")
	}
	return nil
}

// Open takes the backend over for one Client, and says which of the Options is bad.
func (b *Backend) Open() error { return b.owner.Take(b.invalid) }

// Info says what the backend promises: everything.
func (b *Backend) Info() driver.Info {
	info := driver.Info{
		Name:      "redis",
		Namespace: b.prefix,
		Fair:      true,
		Linger:    true,
		After:     b.member == nil,
		MinTTL:    minTTL,
		MaxTTL:    maxTTL,
	}
	if b.member != nil {
		info.MaxTTL = b.member.MaxTTL
	}
	return info
}

// Close ends the subscription, and every Await with ErrClosed. Requests that are
// under way finish by themselves.
func (b *Backend) Close() error {
	b.subscriber.close()
	b.transport.close()
	return nil
}

// ready says whether a call may be made.
func (b *Backend) ready(ctx context.Context) error {
	if b.subscriber.ctx.Err() != nil {
		return driver.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if b.invalid != nil {
		return driver.Permanent(b.invalid)
	}
	return nil
}
