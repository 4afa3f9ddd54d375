package traffic

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver named "pgx"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	_ "modernc.org/sqlite" // the driver named "sqlite"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/etcdlock"
	"github.com/fencelock/fencelock/memlock"
	"github.com/fencelock/fencelock/quorumlock"
	"github.com/fencelock/fencelock/redislock"
	"github.com/fencelock/fencelock/sqllock"
	"github.com/fencelock/fencelock/zklock"
)

// Opener opens a backend of package driver for leases of ttl.
type Opener func(ctx context.Context, u *url.URL, ttl time.Duration) (driver.Backend, func(), error)

// fallback is how soon a waiter of ours asks again where a message was lost: a second,
// and a quarter of it by which askers are spread.
const fallback = 1250 * time.Millisecond

// Ours makes a Service of a backend of package driver. info is what such a backend
// promises, lag what it adds to a lease.
func Ours(info driver.Info, lag time.Duration, open Opener) Service {
	t := Traits{
		Name: info.Name, Tokens: info.Fencing, Told: true, Kinds: true, Permits: info.Semaphore, Reentrant: true,
		Fair: info.Fair, Lag: lag, MinTTL: info.MinTTL,
	}
	if info.Fair {
		t.Wake = fallback
	}
	return Service{Traits: t, Open: func(ctx context.Context, raw string, ttl time.Duration) (Locks, error) {
		u, err := url.Parse(raw)
		if err != nil {
			return nil, fmt.Errorf("the URL cannot be read")
		}
		b, done, err := open(ctx, u, ttl)
		if err != nil {
			return nil, err
		}
		return OnBackend(b, &fencelock.Options{TTL: ttl}, done), nil
	}}
}

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
		"memory":         Ours(named("memory", 0), 0, openMemory),
		"sqlite":         Ours(named("sqlite", 0), 0, openSQLite),
		"redis":          Ours(named("redis", 0), 0, openRedis),
		"redis+sentinel": Ours(named("redis, Sentinel", 0), 0, openSentinel),
		"redis+cluster":  Ours(named("redis, Cluster", 0), 0, openCluster),
		"redlock":        Ours(quorum, 2*time.Second, openRedlock),
		"postgres":       Ours(named("postgres", 0), 0, openPostgres),
		"mysql":          Ours(named("mysql", 0), 0, openMySQL),
		// etcd counts leases in whole seconds and revokes them in batches.
		"etcd": Ours(named("etcd", 2*time.Second), 2*time.Second, openEtcd),
		// A crashed process keeps its locks for its whole session, and ZooKeeper ends those
		// at a multiple of its tick.
		"zk":              Ours(named("zookeeper", time.Second), time.Second, openZooKeeper),
		"redis+redsync":   redsyncService(),
		"redis+redislock": redislockService(),
	}
	t["postgresql"], t["mariadb"] = t["postgres"], t["mysql"]
	return t
}

// memory is the one store of this process.
var memory = sync.OnceValue(func() *memlock.Store { return memlock.New() })

// keepOpen is the one store of a process, seen by several Clients.
type keepOpen struct{ *memlock.Store }

func (keepOpen) Close() error { return nil }

func openMemory(context.Context, *url.URL, time.Duration) (driver.Backend, func(), error) {
	return keepOpen{memory()}, nil, nil
}

func openSQLite(_ context.Context, u *url.URL, _ time.Duration) (driver.Backend, func(), error) {
	return OpenSQLite(u.Path)
}

// OpenSQLite opens a backend on a file, and says how to close what is below it.
func OpenSQLite(path string) (driver.Backend, func(), error) {
	return openSQL("sqlite", sqllock.SQLiteDSN(path), sqllock.SQLite, &sqllock.Options{CreateTables: true})
}

func openSQL(name, dsn string, d sqllock.Dialect, o *sqllock.Options) (driver.Backend, func(), error) {
	db, err := sql.Open(name, dsn)
	if err != nil {
		return nil, nil, err
	}
	db.SetMaxOpenConns(4)
	return sqllock.New(db, d, o), func() { db.Close() }, nil
}

// quick makes a client of Redis notice soon that nobody answers.
const quick = 2 * time.Second

type noLog struct{}

func (noLog) Printf(context.Context, string, ...any) {}
func (noLog) Print(...any)                           {}

func redisOptions(addr string) *redis.Options {
	redis.SetLogger(noLog{})
	return &redis.Options{Addr: addr, ContextTimeoutEnabled: true, DisableIdentity: true, DialTimeout: quick}
}

func openRedis(_ context.Context, u *url.URL, _ time.Duration) (driver.Backend, func(), error) {
	rdb := redis.NewClient(redisOptions(u.Host))
	return redislock.New(rdb, nil), func() { rdb.Close() }, nil
}

func openSentinel(_ context.Context, u *url.URL, _ time.Duration) (driver.Backend, func(), error) {
	redis.SetLogger(noLog{})
	name, _, _ := strings.Cut(strings.Trim(u.Path, "/"), "/")
	rdb := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: name, SentinelAddrs: strings.Split(u.Host, ","),
		ContextTimeoutEnabled: true, DisableIdentity: true, DialTimeout: quick,
	})
	return redislock.New(rdb, nil), func() { rdb.Close() }, nil
}

func openCluster(_ context.Context, u *url.URL, _ time.Duration) (driver.Backend, func(), error) {
	redis.SetLogger(noLog{})
	rdb := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs:                 strings.Split(u.Host, ","),
		ContextTimeoutEnabled: true, DisableIdentity: true, DialTimeout: quick,
	})
	return redislock.New(rdb, nil), func() { rdb.Close() }, nil
}

func openRedlock(ctx context.Context, u *url.URL, _ time.Duration) (driver.Backend, func(), error) {
	var clients []*redis.Client
	var members []driver.Backend
	hosts := strings.Split(u.Host, ",")
	for _, h := range hosts {
		rdb := redis.NewClient(redisOptions(h))
		clients = append(clients, rdb)
		members = append(members, redislock.New(rdb, &redislock.Options{Member: &driver.Membership{}}))
	}
	return quorumlock.New(members, &quorumlock.Options{Names: hosts}), func() {
		for _, rdb := range clients {
			rdb.Close()
		}
	}, nil
}

func openPostgres(_ context.Context, u *url.URL, _ time.Duration) (driver.Backend, func(), error) {
	dsn := u.String()
	return openSQL("pgx", dsn, sqllock.Postgres, &sqllock.Options{CreateTables: true, Listen: listen(dsn)})
}

// listen waits for notifications on a connection of its own.
func listen(dsn string) func(context.Context, string, func()) error {
	return func(ctx context.Context, channel string, heard func()) error {
		conn, err := pgx.Connect(ctx, dsn)
		if err != nil {
			return err
		}
		defer conn.Close(context.WithoutCancel(ctx))
		if _, err := conn.Exec(ctx, "LISTEN "+channel); err != nil {
			return err
		}
		for {
			heard()
			if _, err := conn.WaitForNotification(ctx); err != nil {
				return err
			}
		}
	}
}

func openMySQL(_ context.Context, u *url.URL, _ time.Duration) (driver.Backend, func(), error) {
	o := mysql.NewConfig()
	o.Net, o.Addr, o.DBName = "tcp", u.Host, strings.Trim(u.Path, "/")
	o.User = u.User.Username()
	o.Passwd, _ = u.User.Password()
	o.Logger = noLog{}
	return openSQL("mysql", o.FormatDSN(), sqllock.MySQL, &sqllock.Options{CreateTables: true})
}

func openEtcd(_ context.Context, u *url.URL, _ time.Duration) (driver.Backend, func(), error) {
	cfg := clientv3.Config{Endpoints: strings.Split(u.Host, ","), DialTimeout: quick, Logger: zap.NewNop()}
	cfg.Username = u.User.Username()
	cfg.Password, _ = u.User.Password()
	client, err := clientv3.New(cfg)
	if err != nil {
		return nil, nil, err
	}
	return etcdlock.New(client, nil), func() { client.Close() }, nil
}

// openZooKeeper asks for a session that is as short as the lease allows: a crashed
// process keeps its locks for all of it.
func openZooKeeper(_ context.Context, u *url.URL, ttl time.Duration) (driver.Backend, func(), error) {
	return zklock.New(strings.Split(u.Host, ","), &zklock.Options{SessionTimeout: ttl * 3 / 2}), nil, nil
}
