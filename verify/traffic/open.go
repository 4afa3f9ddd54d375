package traffic

import (
	"context"
	"crypto/tls"
	"database/sql"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
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
		u, err := ParseURL(raw)
		if err != nil {
			return nil, err
		}
		b, done, err := open(ctx, u, ttl)
		if err != nil {
			return nil, err
		}
		return OnBackend(b, &fencelock.Options{TTL: ttl, HandOff: 2}, done), nil // so that claims end while others wait here
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
		"redis+sentinel": Ours(named("redis, Sentinel", 0), 0, openRedis),
		"redis+cluster":  Ours(named("redis, Cluster", 0), 0, openRedis),
		"redlock":        Ours(quorum, 2*time.Second, openRedlock),
		// Of members that lose nothing of what they have acknowledged when they are killed.
		"redlock+durable": Ours(quorum, 2*time.Second, openDurable),
		"postgres":        Ours(named("postgres", 0), 0, openPostgres),
		"mysql":           Ours(named("mysql", 0), 0, openMySQL),
		// etcd counts leases in whole seconds and revokes them in batches.
		"etcd": Ours(named("etcd", 2*time.Second), 2*time.Second, openEtcd),
		// A crashed process keeps its locks for its whole session, and ZooKeeper ends those
		// at a multiple of its tick.
		"zk":              Ours(named("zookeeper", time.Second), time.Second, openZooKeeper),
		"redis+redsync":   redsyncService(),
		"redis+redislock": redislockService(),
	}
	t["postgresql"], t["mariadb"], t["etcds"], t["local"] = t["postgres"], t["mysql"], t["etcd"], t["sqlite"]
	tls := t["redis"]
	tls.Name = "redis, TLS"
	t["rediss"] = tls
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
	return OpenSQLite(File(u))
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
	b, done := onSQL(db, d, o)
	return b, done, nil
}

func onSQL(db *sql.DB, d sqllock.Dialect, o *sqllock.Options) (driver.Backend, func()) {
	db.SetMaxOpenConns(4)
	return sqllock.New(db, d, o), func() { db.Close() }
}

// quick makes a client of Redis notice soon that nobody answers.
const quick = 2 * time.Second

type noLog struct{}

func (noLog) Printf(context.Context, string, ...any) {}
func (noLog) Print(...any)                           {}

// OpenRedis returns a client for what redis:, rediss:, redis+sentinel: and redis+cluster:
// URLs name. It asks nobody yet.
func OpenRedis(ctx context.Context, u *url.URL) redis.UniversalClient {
	redis.SetLogger(noLog{})
	hosts := strings.Split(u.Host, ",")
	user := u.User.Username()
	password, _ := u.User.Password()
	dial := dialer(ctx)
	switch u.Scheme {
	case "redis+sentinel":
		return redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: part(u, 0), DB: database(u, 1), SentinelAddrs: hosts, Username: user, Password: password, Dialer: dial,
			ContextTimeoutEnabled: true, DisableIdentity: true, DialTimeout: quick,
		})
	case "redis+cluster":
		return redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: hosts, Username: user, Password: password, Dialer: dial,
			ContextTimeoutEnabled: true, DisableIdentity: true, DialTimeout: quick,
		})
	}
	o := &redis.Options{
		Addr: u.Host, DB: database(u, 0), Username: user, Password: password, Dialer: dial,
		ContextTimeoutEnabled: true, DisableIdentity: true, DialTimeout: quick,
	}
	if u.Scheme == "rediss" {
		o.TLSConfig = &tls.Config{ServerName: u.Hostname(), MinVersion: tls.VersionTLS12}
		if dial != nil { // which the client leaves all of it to
			o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
				c, err := dial(ctx, network, addr)
				if err != nil {
					return nil, err
				}
				secure := tls.Client(c, o.TLSConfig)
				if err := secure.HandshakeContext(ctx); err != nil {
					c.Close()
					return nil, err
				}
				return secure, nil
			}
		}
	}
	return redis.NewClient(o)
}

func openRedis(ctx context.Context, u *url.URL, _ time.Duration) (driver.Backend, func(), error) {
	rdb := OpenRedis(ctx, u)
	return redislock.New(rdb, nil), func() { rdb.Close() }, nil
}

func openRedlock(ctx context.Context, u *url.URL, _ time.Duration) (driver.Backend, func(), error) {
	q, end, err := OpenQuorum(ctx, u, driver.Membership{})
	if err != nil {
		return nil, nil, err
	}
	return q, end, nil
}

func openDurable(ctx context.Context, u *url.URL, _ time.Duration) (driver.Backend, func(), error) {
	q, end, err := OpenQuorum(ctx, u, driver.Membership{Durable: true})
	if err != nil {
		return nil, nil, err
	}
	return q, end, nil
}

// OpenQuorum opens the members of a redlock: URL that ParseURL has read, and says how to
// close what is below the quorum.
func OpenQuorum(ctx context.Context, u *url.URL, as driver.Membership) (*quorumlock.Backend, func(), error) {
	var ends []func()
	end := func() {
		for _, f := range ends {
			f()
		}
	}
	var all []driver.Backend
	var names []string
	for _, m := range Members(u) {
		names = append(names, m.Host)
		if strings.HasPrefix(m.Scheme, "postgres") {
			b, done, err := openPostgresAs(ctx, m, &as)
			if err != nil {
				end()
				return nil, nil, err
			}
			all, ends = append(all, b), append(ends, done)
			continue
		}
		rdb := OpenRedis(ctx, m)
		ends = append(ends, func() { rdb.Close() })
		all = append(all, redislock.New(rdb, &redislock.Options{Member: &as}))
	}
	return quorumlock.New(all, &quorumlock.Options{Names: names}), end, nil
}

// Members are those of a quorum that ParseURL has read.
func Members(u *url.URL) []*url.URL {
	var all []*url.URL
	if u.Opaque == "" {
		for _, h := range strings.Split(u.Host, ",") {
			all = append(all, &url.URL{Scheme: "redis", User: u.User, Host: h, Path: u.Path})
		}
		return all
	}
	for _, raw := range strings.Split(u.Opaque, ",") {
		m, err := parseURL(raw, "")
		if err != nil {
			panic(err) // it was read before
		}
		if _, own := m.User.Password(); !own && u.User != nil {
			password, _ := u.User.Password()
			m.User = url.UserPassword(m.User.Username(), password)
		}
		all = append(all, m)
	}
	return all
}

func openPostgres(ctx context.Context, u *url.URL, _ time.Duration) (driver.Backend, func(), error) {
	return openPostgresAs(ctx, u, nil)
}

func openPostgresAs(ctx context.Context, u *url.URL, of *driver.Membership) (driver.Backend, func(), error) {
	config, err := pgx.ParseConfig(u.String())
	if err != nil {
		return nil, nil, fmt.Errorf("the settings for postgres %s cannot be used", u.Host)
	}
	if dial := dialer(ctx); dial != nil {
		config.DialFunc = dial
	}
	b, done := onSQL(stdlib.OpenDB(*config), sqllock.Postgres, &sqllock.Options{CreateTables: true, Listen: Listen(config), Member: of})
	return b, done, nil
}

// Listen is an Options.Listen of sqllock: it waits for notifications on a connection of its
// own.
func Listen(config *pgx.ConnConfig) func(context.Context, string, func()) error {
	return func(ctx context.Context, channel string, heard func()) error {
		conn, err := pgx.ConnectConfig(ctx, config.Copy())
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

// mysqlDSN is what a mysql: or mariadb: URL names.
func mysqlDSN(u *url.URL) string {
	o := mysql.NewConfig()
	o.Net, o.Addr, o.DBName = "tcp", u.Host, part(u, 0)
	o.User = u.User.Username()
	o.Passwd, _ = u.User.Password()
	return o.FormatDSN()
}

func openMySQL(_ context.Context, u *url.URL, _ time.Duration) (driver.Backend, func(), error) {
	_ = mysql.SetLogger(noLog{})
	return openSQL("mysql", mysqlDSN(u), sqllock.MySQL, &sqllock.Options{CreateTables: true})
}

// OpenSQL opens the database below a sqlite:, local:, postgres: or mysql: URL, for those
// who change what is in it.
func OpenSQL(u *url.URL) (*sql.DB, error) {
	switch u.Scheme {
	case "sqlite", "local":
		return sql.Open("sqlite", sqllock.SQLiteDSN(File(u)))
	case "postgres", "postgresql":
		return sql.Open("pgx", u.String())
	case "mysql", "mariadb":
		_ = mysql.SetLogger(noLog{})
		return sql.Open("mysql", mysqlDSN(u))
	}
	return nil, fmt.Errorf("%s is no database", u.Scheme)
}

func openEtcd(ctx context.Context, u *url.URL, _ time.Duration) (driver.Backend, func(), error) {
	cfg := clientv3.Config{DialTimeout: quick, Logger: zap.NewNop()}
	cfg.Username = u.User.Username()
	cfg.Password, _ = u.User.Password()
	transport := "http://"
	if u.Scheme == "etcds" {
		transport, cfg.TLS = "https://", &tls.Config{MinVersion: tls.VersionTLS12}
	}
	for _, h := range strings.Split(u.Host, ",") {
		cfg.Endpoints = append(cfg.Endpoints, transport+h)
	}
	if dial := dialer(ctx); dial != nil {
		cfg.DialOptions = append(cfg.DialOptions, grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			return dial(ctx, "tcp", addr)
		}))
	}
	client, err := clientv3.New(cfg)
	if err != nil {
		return nil, nil, err
	}
	o := &etcdlock.Options{}
	if parts := Parts(u); len(parts) > 0 {
		o.Prefix = strings.Join(parts, "/") + "/"
	}
	return etcdlock.New(client, o), func() { client.Close() }, nil
}

// openZooKeeper asks for a session that is as short as the lease allows: a crashed
// process keeps its locks for all of it.
func openZooKeeper(_ context.Context, u *url.URL, ttl time.Duration) (driver.Backend, func(), error) {
	o := &zklock.Options{SessionTimeout: ttl * 3 / 2}
	if parts := Parts(u); len(parts) > 0 {
		o.Prefix = "/" + strings.Join(parts, "/")
	}
	if user := u.User.Username(); user != "" {
		password, _ := u.User.Password()
		o.Digest = user + ":" + password
	}
	return zklock.New(strings.Split(u.Host, ","), o), nil, nil
}
