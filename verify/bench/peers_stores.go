package bench

import (
	"context"
	"database/sql"
	"errors"
	"io"
	"log"
	"strconv"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/go-zookeeper/zk"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver named "pgx"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
)

func init() {
	// What it has to say comes back as errors too.
	_ = mysql.SetLogger(log.New(io.Discard, "", 0))
}

func dialEtcd(e Env) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: []string{e.Addr}, Logger: zap.NewNop()})
}

// openEtcdFloor opens a floor that puts a key that is not there, and deletes it.
var openEtcdFloor = onClient(dialEtcd, func(_ Env, etcd *clientv3.Client) library[string] {
	return library[string]{
		lock: func(ctx context.Context, key string) (string, error) {
			key = "floor/" + key
			absent := clientv3.Compare(clientv3.CreateRevision(key), "=", 0)
			put, err := etcd.Txn(ctx).If(absent).Then(clientv3.OpPut(key, rawValue)).Commit()
			if err == nil && !put.Succeeded {
				err = errTaken
			}
			return key, err
		},
		unlock: func(_ context.Context, _, key string) error {
			_, err := etcd.Delete(context.Background(), key)
			return err
		},
		close: etcd.Close,
	}
})

// etcdHeld is a lock of etcd/concurrency.
type etcdHeld struct {
	session *concurrency.Session
	mutex   *concurrency.Mutex
}

// openEtcdConcurrency opens go.etcd.io/etcd/client/v3/concurrency. Its Mutex excludes
// sessions, not goroutines, so each goroutine that is inside or waits has a session of its
// own. Sessions are kept for the next one, for to begin one costs a lease.
var openEtcdConcurrency = onClient(dialEtcd, func(e Env, etcd *clientv3.Client) library[etcdHeld] {
	sessions := make(chan *concurrency.Session, 1000)
	return library[etcdHeld]{
		lock: func(ctx context.Context, key string) (h etcdHeld, err error) {
			select {
			case h.session = <-sessions:
			default:
				h.session, err = concurrency.NewSession(etcd, concurrency.WithTTL(int(e.TTL.Seconds())))
				if err != nil {
					return h, err
				}
			}
			h.mutex = concurrency.NewMutex(h.session, "locks/"+key)
			if err = h.mutex.Lock(ctx); err != nil {
				sessions <- h.session
			}
			return h, err
		},
		unlock: func(_ context.Context, _ string, h etcdHeld) error {
			defer func() { sessions <- h.session }()
			return h.mutex.Unlock(context.Background())
		},
		close: func() error {
			err := inParallel(len(sessions), func(int) error { return (<-sessions).Close() })
			return errors.Join(err, etcd.Close())
		},
	}
})

func dialZooKeeper(e Env) (*zk.Conn, error) {
	quiet := zk.WithLogger(log.New(io.Discard, "", 0))
	conn, _, err := zk.Connect([]string{e.Addr}, 10*time.Second, zk.WithLogInfo(false), quiet)
	return conn, err
}

var everybody = zk.WorldACL(zk.PermAll)

// openZooKeeperFloor opens a floor that makes an ephemeral sequential node and deletes it.
var openZooKeeperFloor = onClient(dialZooKeeper, func(_ Env, conn *zk.Conn) library[string] {
	return library[string]{
		lock: func(_ context.Context, key string) (string, error) {
			return conn.Create("/floor-"+key, nil, zk.FlagEphemeral|zk.FlagSequence, everybody)
		},
		unlock: func(_ context.Context, _, path string) error { return conn.Delete(path, -1) },
		close:  func() error { conn.Close(); return nil },
	}
})

// openZooKeeperLock opens the Lock of github.com/go-zookeeper/zk. It cannot be told to give
// up waiting, and its nodes' parents stay.
var openZooKeeperLock = onClient(dialZooKeeper, func(_ Env, conn *zk.Conn) library[*zk.Lock] {
	return library[*zk.Lock]{
		lock: func(_ context.Context, key string) (*zk.Lock, error) {
			l := zk.NewLock(conn, "/locks/"+key, everybody)
			return l, l.Lock()
		},
		unlock: func(_ context.Context, _ string, l *zk.Lock) error { return l.Unlock() },
		close:  func() error { conn.Close(); return nil },
	}
})

// poolSize is how many connections to a database each library may have. They stay open.
const poolSize = 64

func dialSQL(driver string) func(Env) (*sql.DB, error) {
	return func(e Env) (*sql.DB, error) {
		source := e.URL
		if driver == "mysql" {
			source = "root@tcp(" + e.Addr + ")/locks"
		}
		db, err := sql.Open(driver, source)
		if err != nil {
			return nil, err
		}
		db.SetMaxOpenConns(poolSize)
		db.SetMaxIdleConns(poolSize)
		return db, nil
	}
}

// floorRows is how many rows the floor of a database has. The keys of one turn are
// consecutive numbers, and not more than these, so that no two of them share a row.
const floorRows = 1024

// dialSQLFloor makes the rows.
func dialSQLFloor(driver string) func(Env) (*sql.DB, error) {
	return func(e Env) (*sql.DB, error) {
		db, err := dialSQL(driver)(e)
		if err != nil {
			return nil, err
		}
		statements := []string{"DROP TABLE IF EXISTS floor", "CREATE TABLE floor (k INTEGER PRIMARY KEY, v BIGINT)"}
		for row := range floorRows {
			statements = append(statements, "INSERT INTO floor VALUES ("+strconv.Itoa(row)+", 0)")
		}
		for _, s := range statements {
			if _, err := db.Exec(s); err != nil {
				return nil, errors.Join(err, db.Close())
			}
		}
		return db, nil
	}
}

// openSQLFloor opens a floor that changes a row that nobody else changes, twice, each time
// in the smallest transaction that a SQL database has: one statement by itself.
func openSQLFloor(driver, update string) opener {
	return onClient(dialSQLFloor(driver), func(_ Env, db *sql.DB) library[int] {
		return library[int]{
			lock: func(ctx context.Context, key string) (int, error) {
				n, err := strconv.Atoi(key[1:])
				if err != nil {
					return 0, err
				}
				_, err = db.ExecContext(ctx, update, n%floorRows)
				return n % floorRows, err
			},
			unlock: func(_ context.Context, _ string, row int) error {
				_, err := db.ExecContext(context.Background(), update, row)
				return err
			},
			close: db.Close,
		}
	})
}

// openAdvisory opens a lock of a database session. It needs a connection for as long as
// somebody waits for it or holds it. It writes nothing to the disk.
func openAdvisory(driver, lock, unlock string) opener {
	return onClient(dialSQL(driver), func(_ Env, db *sql.DB) library[*sql.Conn] {
		return library[*sql.Conn]{
			lock: func(_ context.Context, key string) (*sql.Conn, error) {
				ctx := context.Background() // a session whose client leaves goes on waiting, so nobody leaves
				conn, err := db.Conn(ctx)
				if err != nil {
					return nil, err
				}
				if _, err := conn.ExecContext(ctx, lock, key); err != nil {
					return nil, errors.Join(err, conn.Close())
				}
				return conn, nil
			},
			unlock: func(_ context.Context, key string, conn *sql.Conn) error {
				_, err := conn.ExecContext(context.Background(), unlock, key)
				return errors.Join(err, conn.Close())
			},
			close: db.Close,
		}
	})
}
