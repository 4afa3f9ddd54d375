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
	"github.com/fencelock/fencelock/memlock"
	"github.com/fencelock/fencelock/storeurl"
)

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
