package traffic

import (
	"context"
	"database/sql"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/memlock"
	"github.com/fencelock/fencelock/quorumlock"
	"github.com/fencelock/fencelock/storeurl"
)

// quick makes a client notice soon that nobody answers.
const quick = 2 * time.Second

// config opens a store for leases of ttl, with connections that go where ctx says.
func config(ctx context.Context, ttl time.Duration, as driver.Membership) storeurl.Config {
	return storeurl.Config{
		Dial: dialer(ctx), DialTimeout: quick, MaxConns: 4, Prepare: true, Membership: as,
		// As short as the lease allows: a crashed process keeps its locks for all of it.
		SessionTimeout: ttl * 3 / 2,
	}
}

// fallback is how soon a waiter of ours asks again where a message was lost: a second,
// and a quarter of it by which askers are spread.
const fallback = 1250 * time.Millisecond

// service makes a Service of the backends of this project. info is what such a backend
// promises, lag what it adds to a lease, as what the members of a quorum promise.
func service(info driver.Info, lag time.Duration, as driver.Membership) Service {
	t := Traits{
		Name: info.Name, Tokens: info.Fencing, Told: true, Kinds: true, Permits: info.Semaphore, Reentrant: true,
		Fair: info.Fair, Lag: lag, MinTTL: info.MinTTL,
	}
	if info.Fair {
		t.Wake = fallback
	}
	return Service{Traits: t, Open: func(ctx context.Context, raw string, ttl time.Duration) (Locks, error) {
		u, err := ParseURL(raw)
		if err != nil {
			return nil, err
		}
		b, done, err := open(ctx, u, ttl, as)
		if err != nil {
			return nil, err
		}
		if info.Name == "sqlite" {
			b = Interrupt(context.Background(), b, 8, time.Millisecond, new(atomic.Int64))
		}
		// HandOff is small so that claims end while others wait here.
		return OnBackend(b, &fencelock.Options{TTL: ttl, HandOff: 2}, done), nil
	}}
}

func open(
	ctx context.Context, u *storeurl.URL, ttl time.Duration, as driver.Membership,
) (b driver.Backend, close func(), err error) {
	if u.Private() {
		return keepOpen{memory()}, func() {}, nil
	}
	s, err := u.Open(ctx, config(ctx, ttl, as))
	if err != nil {
		return nil, nil, err
	}
	return s.Backend, s.Close, nil
}

// memory is the one store of this process.
var memory = sync.OnceValue(func() *memlock.Store { return memlock.New() })

// keepOpen is the one store of a process, seen by several Clients.
type keepOpen struct{ *memlock.Store }

func (keepOpen) Close() error { return nil }

// Schemes are our own backends by the scheme of their URLs, and the locks of others
// that we know, by scheme+name.
func Schemes() Table {
	all := driver.Info{Fair: true, Fencing: true, Semaphore: true, MinTTL: 100 * time.Millisecond}
	named := func(name string, min time.Duration) driver.Info {
		info := all
		info.Name = name
		info.MinTTL = max(min, info.MinTTL)
		return info
	}
	quorum := driver.Info{Name: "quorum", Fencing: true, MinTTL: 100 * time.Millisecond}
	t := Table{
		"memory":         service(named("memory", 0), 0, driver.Membership{}),
		"sqlite":         service(named("sqlite", 0), 0, driver.Membership{}),
		"redis":          service(named("redis", 0), 0, driver.Membership{}),
		"redis+sentinel": service(named("redis, Sentinel", 0), 0, driver.Membership{}),
		"redis+cluster":  service(named("redis, Cluster", 0), 0, driver.Membership{}),
		"redlock":        service(quorum, 2*time.Second, driver.Membership{}),
		// Of members that lose nothing of what they have acknowledged when they are killed.
		"redlock+durable": service(quorum, 2*time.Second, driver.Membership{Durable: true}),
		"postgres":        service(named("postgres", 0), 0, driver.Membership{}),
		"mysql":           service(named("mysql", 0), 0, driver.Membership{}),
		// etcd counts leases in whole seconds and revokes them in batches.
		"etcd": service(named("etcd", 2*time.Second), 2*time.Second, driver.Membership{}),
		// A crashed process keeps its locks for its whole session, and ZooKeeper ends those
		// at a multiple of its tick.
		"zk":              service(named("zookeeper", time.Second), time.Second, driver.Membership{}),
		"redis+redsync":   foreignService("redsync", redsyncLibrary),
		"redis+redislock": foreignService("bsm/redislock", bsmLibrary),
	}
	t["postgresql"], t["mariadb"], t["etcds"], t["local"] = t["postgres"], t["mysql"], t["etcd"], t["sqlite"]
	tls := t["redis"]
	tls.Name = "redis, TLS"
	t["rediss"] = tls
	return t
}

// OpenSQLite opens a backend on a file, and says how to close what is below it.
func OpenSQLite(path string) (driver.Backend, func(), error) {
	u, err := ParseURL("sqlite://" + path)
	if err != nil {
		return nil, nil, err
	}
	return open(context.Background(), u, 0, driver.Membership{})
}

// OpenRedis returns a client for what redis:, rediss:, redis+sentinel: and redis+cluster:
// URLs name. It asks nobody yet.
func OpenRedis(ctx context.Context, u *storeurl.URL) (redis.UniversalClient, error) {
	return u.Redis(ctx, config(ctx, 0, driver.Membership{}))
}

// OpenQuorum opens the members of a redlock: URL, and says how to close them.
func OpenQuorum(ctx context.Context, u *storeurl.URL, as driver.Membership) (*quorumlock.Backend, func(), error) {
	s, err := u.Open(ctx, config(ctx, 0, as))
	if err != nil {
		return nil, nil, err
	}
	return s.Backend.(*quorumlock.Backend), s.Close, nil
}

// OpenSQL opens the database below a sqlite:, local:, postgres: or mysql: URL, for those
// who change what is in it.
func OpenSQL(u *storeurl.URL) (*sql.DB, error) { return u.SQL() }

// Listen is an Options.Listen of package sqllock, on a connection of its own.
func Listen(config *pgx.ConnConfig) func(context.Context, string, func()) error {
	return storeurl.Listen(config, nil)
}
