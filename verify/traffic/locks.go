package traffic

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver/ballot"
	"github.com/fencelock/fencelock/internal/history"
	"github.com/fencelock/fencelock/memlock"
	"github.com/fencelock/fencelock/storeurl"
)

// Locks is one view of a lock service, as one client of it has. Its methods may be called
// from many goroutines.
type Locks interface {
	// Take takes a lock. When ctx ends it gives up. Without a Lease the Outcome says why.
	Take(ctx context.Context, w Want) (Lease, Outcome, error)
	// Close gives everything back that can be given back.
	Close() error
}

// Want is a wish for a lock.
type Want struct {
	Key          string
	Kind         history.Kind
	Weight, Size int64 // of Permit
	Try          bool  // now or not at all
	Wait         time.Duration
}

// Outcome is what came of a wish without a lock.
type Outcome int

// The outcomes.
const (
	Got     Outcome = iota
	NotNow          // refused: nothing of the wish is left in the store
	Unknown         // given up, or nobody answered
	Strange         // an answer that should not be
)

// Lease is a lock that is held.
type Lease interface {
	// Token is the fencing token, 0 if there is none.
	Token() int64
	// Context ends when the lease does. A library that cannot tell returns a context that
	// does not end.
	Context() context.Context
	// Err is nil while the library says that the lock is held. A library that cannot tell
	// without asking returns nil: that is what its users go by.
	Err() error
	// Deadline is when the lease ends unless it is renewed; the zero time if the library does
	// not tell.
	Deadline() time.Time
	// Release gives it back. lost says that it had ended before.
	Release(ctx context.Context) (lost bool, err error)
}

// Extender is a lease that its holder can prolong.
type Extender interface {
	// Renew renews the lease by hand.
	Renew(ctx context.Context) error
	// Again takes another handle of the same grant.
	Again(ctx context.Context) (Lease, error)
}

// Admin sees and ends the claims of others.
type Admin interface {
	// Lines returns the keys that somebody holds or waits for.
	Lines(ctx context.Context) ([]string, error)
	// Head returns the span of tokens of the holder of key; 0 if there is none.
	Head(ctx context.Context, key string) (token, span int64, err error)
	// Break ends that claim, at once or after notice. It reports whether there was none, so that nothing has
	// changed.
	Break(ctx context.Context, key string, token int64, notice time.Duration) (none bool, err error)
}

// Traits say what a lock service is able to do and promises.
type Traits struct {
	Name string
	Ways []string // in which it can be used, of those that Ways returns
	Told bool     // a holder is told, or can see by itself, when its lease has ended
	Fair bool     // waiters stand in a line, and are granted without asking again
	// Wake is how soon a waiter asks again where a message was lost; 0 for no promise.
	Wake time.Duration
	// Lag is what the service adds to a lease before it lets the next one in, when a holder
	// is gone.
	Lag time.Duration
	// MinTTL is the shortest lease.
	MinTTL time.Duration
}

// Service is a kind of lock service.
type Service struct {
	Traits
	// Open opens one view of the service at url, whose leases last ttl. Connections go through
	// the proxy at via, if any, which is told the address that was meant.
	Open func(ctx context.Context, url, via string, ttl time.Duration) (Locks, error)
}

// Table names services. A worker finds there what its order names.
type Table map[string]Service

// ParseURL reads a URL as the command fencelock does, with the password of the environment.
func ParseURL(raw string) (*storeurl.URL, error) {
	return storeurl.Parse(raw, storeurl.Environment("-url"))
}

// quick makes a client notice soon that nobody answers.
const quick = 2 * time.Second

// config opens a store for leases of ttl.
func config(via string, ttl time.Duration, as ballot.Membership) storeurl.Config {
	return storeurl.Config{
		Dial: dialer(via), DialTimeout: quick, MaxConns: 4, Prepare: true, Membership: as,
		// As short as the lease allows: a crashed process keeps its locks for all of it.
		SessionTimeout: ttl * 3 / 2,
	}
}

// dialer connects through a proxy; nil if there is none.
func dialer(proxy string) func(ctx context.Context, network, addr string) (net.Conn, error) {
	if proxy == "" {
		return nil
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		d := net.Dialer{Timeout: quick}
		c, err := d.DialContext(ctx, network, proxy)
		if err != nil {
			return nil, err
		}
		if _, err := fmt.Fprintln(c, addr); err != nil {
			c.Close()
			return nil, err
		}
		return c, nil
	}
}

// service makes a Service of the backends of this project. as is what the members of a
// quorum promise.
func service(t Traits, as ballot.Membership) Service {
	return Service{Traits: t, Open: func(ctx context.Context, raw, via string, ttl time.Duration) (Locks, error) {
		u, err := ParseURL(raw)
		if err != nil {
			return nil, err
		}
		// HandOff is small so that claims end while others wait here.
		o := &fencelock.Options{TTL: ttl, HandOff: 2}
		if u.Private() {
			return OnBackend(keepOpen{memory()}, o, func() {}), nil
		}
		s, err := u.Open(ctx, config(via, ttl, as))
		if err != nil {
			return nil, err
		}
		b := s.Backend
		if t.Name == "sqlite" {
			b = Interrupt(context.Background(), b, 8, time.Millisecond, new(atomic.Int64))
		}
		return OnBackend(b, o, s.Close), nil
	}}
}

// memory is the one store of this process.
var memory = sync.OnceValue(func() *memlock.Store { return memlock.New() })

// keepOpen is the one store of a process, seen by several Clients.
type keepOpen struct{ *memlock.Store }

func (keepOpen) Close() error { return nil }

// Schemes are our own backends by the scheme of their URLs, and the locks of others
// that we know, by scheme+name.
func Schemes() Table {
	// A waiter asks again after a second, and a quarter of it by which askers are spread.
	const fallback = 1250 * time.Millisecond
	ours := func(name string, minTTL, lag time.Duration) Service {
		return service(Traits{
			Name: name, Ways: Ways(), Told: true, Fair: true, Wake: fallback, Lag: lag, MinTTL: minTTL,
		}, ballot.Membership{})
	}
	const short = 100 * time.Millisecond
	ways := []string{"mutex", "rw", "reentrant", "set", "guard"}
	quorum := Traits{Name: "quorum", Ways: ways, Told: true, Lag: 2 * time.Second, MinTTL: short}
	t := Table{
		"memory":         ours("memory", short, 0),
		"sqlite":         ours("sqlite", short, 0),
		"redis":          ours("redis", short, 0),
		"rediss":         ours("redis, TLS", short, 0),
		"redis+sentinel": ours("redis, Sentinel", short, 0),
		"redis+cluster":  ours("redis, Cluster", short, 0),
		"redlock":        service(quorum, ballot.Membership{}),
		// Of members that lose nothing of what they have acknowledged when they are killed.
		"redlock+durable": service(quorum, ballot.Membership{Durable: true}),
		"postgres":        ours("postgres", short, 0),
		"mysql":           ours("mysql", short, 0),
		// etcd counts leases in whole seconds and revokes them in batches.
		"etcd": ours("etcd", 2*time.Second, 2*time.Second),
		// A crashed process keeps its locks for its whole session, and ZooKeeper ends those
		// at a multiple of its tick.
		// A bucket counts leases in whole seconds, and has another second for its clocks.
		"s3":              ours("s3", 3*time.Second, 4*time.Second),
		"nats":            ours("nats", short, time.Second),
		"zk":              ours("zookeeper", time.Second, time.Second),
		"redis+redsync":   foreignService("redsync", redsyncLibrary),
		"redis+redislock": foreignService("bsm/redislock", bsmLibrary),
	}
	t["postgresql"], t["mariadb"], t["local"] = t["postgres"], t["mysql"], t["sqlite"]
	t["etcds"], t["zks"] = t["etcd"], t["zk"]
	return t
}
