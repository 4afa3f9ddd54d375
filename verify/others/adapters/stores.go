package adapters

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

// openEtcd takes a session for each lock. The token is the revision with which the lock was
// granted.
func openEtcd(addr string, _ time.Duration, _ func(string)) (library, error) {
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{addr}, Logger: zap.NewNop()})
	if err != nil {
		return nil, err
	}
	ctx, cancel := shortly()
	defer cancel()
	_, err = etcd.Status(ctx, addr)
	return lockFunc(func(ctx context.Context, key string, ttl time.Duration) (held, error) {
		session, err := concurrency.NewSession(etcd, concurrency.WithTTL(int(ttl.Seconds())))
		if err != nil {
			return held{}, err
		}
		m := concurrency.NewMutex(session, "locks/"+key)
		if err := m.Lock(ctx); err != nil {
			return held{}, errors.Join(err, session.Close())
		}
		token := strconv.FormatInt(m.Header().Revision, 10)
		return held{token: token, ended: session.Done(), unlock: func() (bool, error) {
			ctx, cancel := shortly()
			defer cancel()
			err := m.Unlock(ctx)
			_ = session.Close() // as the example of its documentation does
			return errors.Is(err, concurrency.ErrLockReleased), err
		}}, nil
	}), err
}

// openZooKeeper makes a session of one lease for all locks of the process. The library tells
// the loss of the session by its events, not by the lock.
func openZooKeeper(addr string, ttl time.Duration, say func(string)) (library, error) {
	quiet := zk.WithLogger(log.New(io.Discard, "", 0))
	conn, events, err := zk.Connect([]string{addr}, ttl, zk.WithLogInfo(false), quiet)
	if err != nil {
		return nil, err
	}
	for e := range events {
		if e.State == zk.StateHasSession {
			break
		}
	}
	go func() {
		for e := range events {
			switch e.State {
			case zk.StateDisconnected:
				say("doubt the session's connection is gone")
			case zk.StateExpired:
				say("told that the session has expired")
			}
		}
	}()
	return lockFunc(func(ctx context.Context, key string, _ time.Duration) (held, error) {
		if _, bounded := ctx.Deadline(); bounded {
			return held{}, errEndless
		}
		l := zk.NewLock(conn, "/locks/"+key, zk.WorldACL(zk.PermAll))
		return held{unlock: func() (bool, error) {
			err := l.Unlock()
			return errors.Is(err, zk.ErrNoNode), err
		}}, l.Lock()
	}), nil
}

func openPostgres(addr string, _ time.Duration, _ func(string)) (library, error) {
	return openAdvisory("pgx", "postgres://postgres@"+addr+"/postgres?sslmode=disable", statements{
		lock:   "SELECT pg_advisory_lock(hashtextextended($1, 0))",
		unlock: "SELECT pg_advisory_unlock(hashtextextended($1, 0))",
	})
}

// openMariaDB waits for a year: GET_LOCK wants a number of seconds.
func openMariaDB(addr string, _ time.Duration, _ func(string)) (library, error) {
	return openAdvisory("mysql", "root@tcp("+addr+")/locks", statements{
		lock: "SELECT GET_LOCK(?, 31536000)", unlock: "SELECT RELEASE_LOCK(?)",
	})
}

type statements struct{ lock, unlock string }

// openAdvisory opens a lock of a database session: a connection is kept for as long as
// somebody waits for the lock or holds it.
func openAdvisory(driver, source string, sqls statements) (library, error) {
	db, err := sql.Open(driver, source)
	if err != nil {
		return nil, err
	}
	return lockFunc(func(ctx context.Context, key string, _ time.Duration) (held, error) {
		conn, err := db.Conn(ctx)
		if err != nil {
			return held{}, err
		}
		if _, err := conn.ExecContext(ctx, sqls.lock, key); err != nil {
			return held{}, errors.Join(err, conn.Close())
		}
		return held{unlock: func() (bool, error) {
			ctx, cancel := shortly()
			defer cancel()
			var was sql.NullBool
			err := conn.QueryRowContext(ctx, sqls.unlock, key).Scan(&was)
			return err == nil && !was.Bool, errors.Join(err, conn.Close())
		}}, nil
	}), db.Ping()
}
