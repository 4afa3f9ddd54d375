package main

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver named "pgx"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	_ "modernc.org/sqlite" // the driver named "sqlite"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/etcdlock"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/memlock"
	"github.com/fencelock/fencelock/quorumlock"
	"github.com/fencelock/fencelock/redislock"
	"github.com/fencelock/fencelock/sqllock"
	"github.com/fencelock/fencelock/verify/traffic"
	"github.com/fencelock/fencelock/zklock"
)

func stores() []store {
	return []store{
		{"memory", startMemory},
		{"SQLite", startSQLite},
		{"Redis", startRedis},
		{"quorum of five Redis", startQuorum},
		{"PostgreSQL", startPostgres},
		{"MariaDB", startMariaDB},
		{"etcd", startEtcd},
		{"ZooKeeper", startZooKeeper},
	}
}

func nothing() {}

func startMemory(context.Context, string) (*running, error) {
	s := memlock.New()
	return &running{open: func() (driver.Backend, func(), error) { return s, nothing, nil }, stop: nothing}, nil
}

func startSQLite(ctx context.Context, dir string) (*running, error) {
	dsn := sqllock.SQLiteDSN(filepath.Join(dir, "locks.db"))
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		return nil, err
	}
	if _, err := db.ExecContext(ctx, "CREATE TABLE floor (k TEXT PRIMARY KEY, v INTEGER) WITHOUT ROWID; INSERT INTO floor VALUES ('k', 0)"); err != nil {
		return nil, err
	}
	return &running{
		open: func() (driver.Backend, func(), error) {
			db, err := sql.Open("sqlite", dsn)
			if err != nil {
				return nil, nil, err
			}
			return sqllock.New(db, sqllock.SQLite, &sqllock.Options{CreateTables: true}), func() { db.Close() }, nil
		},
		floor: twoUpdates(db),
		stop:  func() { db.Close() },
	}, nil
}

// twoUpdates is a lock and its release as the smallest transactions that a SQL database
// has.
func twoUpdates(db *sql.DB) func(context.Context) error {
	return func(ctx context.Context) error {
		for range 2 {
			if _, err := db.ExecContext(ctx, "UPDATE floor SET v = v + 1 WHERE k = 'k'"); err != nil {
				return err
			}
		}
		return nil
	}
}

// compareAndDelete releases what SET NX took.
var compareAndDelete = redis.NewScript(`if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) else return 0 end`)

func startRedis(ctx context.Context, dir string) (*running, error) {
	s, err := testserver.StartRedis(ctx, dir)
	if err != nil {
		return nil, err
	}
	dial := func() *redis.Client { return redis.NewClient(&redis.Options{Addr: s.Addr()}) }
	rdb := dial()
	return &running{
		open: func() (driver.Backend, func(), error) {
			rdb := dial()
			return redislock.New(rdb, nil), func() { rdb.Close() }, nil
		},
		floor: func(ctx context.Context) error {
			if ok, err := rdb.SetNX(ctx, "floor", "owner", time.Minute).Result(); err != nil || !ok {
				return fmt.Errorf("SET NX answered %v, %w", ok, err)
			}
			return compareAndDelete.Run(ctx, rdb, []string{"floor"}, "owner").Err()
		},
		stop: func() { rdb.Close(); s.Stop() },
	}, nil
}

func startQuorum(ctx context.Context, dir string) (*running, error) {
	var addrs []string
	var stops []func()
	for i := range 5 {
		own := filepath.Join(dir, fmt.Sprint(i))
		if err := os.Mkdir(own, 0o755); err != nil {
			return nil, err
		}
		s, err := testserver.StartRedis(ctx, own)
		if err != nil {
			return nil, err
		}
		stops = append(stops, func() { s.Stop() })
		addrs = append(addrs, s.Addr())
	}
	open := func() (*quorumlock.Backend, func()) {
		var members []driver.Backend
		var ends []func() error
		for _, addr := range addrs {
			rdb := redis.NewClient(&redis.Options{Addr: addr})
			ends = append(ends, rdb.Close)
			members = append(members, redislock.New(rdb, &redislock.Options{Member: &driver.Membership{}}))
		}
		return quorumlock.New(members, nil), func() {
			for _, end := range ends {
				end()
			}
		}
	}
	first, end := open()
	defer end()
	if err := first.Initialise(ctx); err != nil {
		return nil, err
	}
	return &running{
		open: func() (driver.Backend, func(), error) {
			b, end := open()
			return b, end, nil
		},
		stop: func() {
			for _, stop := range stops {
				stop()
			}
		},
	}, nil
}

func startPostgres(ctx context.Context, dir string) (*running, error) {
	s, err := testserver.StartPostgres(ctx, dir, testserver.Config("fsync = on"))
	if err != nil {
		return nil, err
	}
	config, err := pgx.ParseConfig(s.URL())
	if err != nil {
		return nil, err
	}
	return startSQL(ctx, s, "pgx", s.URL(), sqllock.Postgres, &sqllock.Options{CreateTables: true, Listen: traffic.Listen(config)})
}

func startMariaDB(ctx context.Context, dir string) (*running, error) {
	s, err := testserver.StartMariaDB(ctx, dir, testserver.Config("innodb_flush_log_at_trx_commit=1"))
	if err != nil {
		return nil, err
	}
	return startSQL(ctx, s, "mysql", "root@tcp("+s.Addr()+")/locks", sqllock.MySQL, &sqllock.Options{CreateTables: true})
}

func startSQL(ctx context.Context, s *testserver.Server, name, dsn string, d sqllock.Dialect, o *sqllock.Options) (*running, error) {
	db, err := sql.Open(name, dsn)
	if err != nil {
		return nil, err
	}
	for _, q := range []string{"CREATE TABLE floor (k VARCHAR(10) PRIMARY KEY, v INTEGER)", "INSERT INTO floor VALUES ('k', 0)"} {
		if _, err := db.ExecContext(ctx, q); err != nil {
			return nil, err
		}
	}
	return &running{
		open: func() (driver.Backend, func(), error) {
			db, err := sql.Open(name, dsn)
			if err != nil {
				return nil, nil, err
			}
			db.SetMaxIdleConns(32)
			return sqllock.New(db, d, o), func() { db.Close() }, nil
		},
		floor: twoUpdates(db),
		stop:  func() { db.Close(); s.Stop() },
	}, nil
}

func startEtcd(ctx context.Context, dir string) (*running, error) {
	s, err := testserver.StartEtcd(ctx, dir, testserver.Persist(true), testserver.Config("--unsafe-no-fsync=false"))
	if err != nil {
		return nil, err
	}
	dial := func() (*clientv3.Client, error) {
		return clientv3.New(clientv3.Config{Endpoints: []string{s.Addr()}, Logger: zap.NewNop()})
	}
	etcd, err := dial()
	if err != nil {
		return nil, err
	}
	return &running{
		open: func() (driver.Backend, func(), error) {
			etcd, err := dial()
			if err != nil {
				return nil, nil, err
			}
			return etcdlock.New(etcd, nil), func() { etcd.Close() }, nil
		},
		floor: func(ctx context.Context) error {
			if _, err := etcd.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision("floor"), "=", 0)).Then(clientv3.OpPut("floor", "owner")).Commit(); err != nil {
				return err
			}
			_, err := etcd.Delete(ctx, "floor")
			return err
		},
		stop: func() { etcd.Close(); s.Stop() },
	}, nil
}

func startZooKeeper(ctx context.Context, dir string) (*running, error) {
	s, err := testserver.StartZooKeeper(ctx, dir, testserver.Persist(true), testserver.Config("forceSync=yes"))
	if err != nil {
		return nil, err
	}
	conn, _, err := zk.Connect([]string{s.Addr()}, 10*time.Second, zk.WithLogInfo(false))
	if err != nil {
		return nil, err
	}
	return &running{
		open: func() (driver.Backend, func(), error) {
			return zklock.New([]string{s.Addr()}, nil), nothing, nil
		},
		floor: func(context.Context) error {
			path, err := conn.Create("/floor-", nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
			if err != nil {
				return err
			}
			return conn.Delete(path, -1)
		},
		stop: func() { conn.Close(); s.Stop() },
	}, nil
}
