package bridge

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	bsm "github.com/bsm/redislock"
	"github.com/fencelock/fencelock/bridge"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/etcdlock/etcdmutex"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/internal/testclient"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/memlock"
	"github.com/fencelock/fencelock/redislock/redisson"
	"github.com/fencelock/fencelock/redislock/setnx"
	"github.com/fencelock/fencelock/sqllock/foreign"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	_ "github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

// format is a lock of another library, as that library's programs take it and as a bridge does.
type format struct {
	other program
	lock  bridge.ForeignLock
	// steal ends the lock of key by force, as a person or a lost server would.
	steal func(ctx context.Context, key string) error
}

var formats = map[string]func(t *testing.T) format{
	"redsync":              redsyncFormat,
	"bsm/redislock":        bsmFormat,
	"Redisson":             redissonFormat,
	"ShedLock, PostgreSQL": func(t *testing.T) format { return shedlock(t, postgresDB(t), foreign.Postgres) },
	"ShedLock, MariaDB":    func(t *testing.T) format { return shedlock(t, mariaDB(t), foreign.MySQL) },
	"pg_advisory_lock":     advisory,
	"GET_LOCK":             getLock,
	"concurrency.Mutex":    etcdMutex,
}

// TestBridgeExcludesProgramsOfEachFormat has programs of another lock, of a bridge and of the new store take one lock,
// phase by phase, there and back.
func TestBridgeExcludesProgramsOfEachFormat(t *testing.T) {
	t.Parallel()
	for name, open := range formats {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, store := open(t), memlock.New()
			both := func() program { return locks(t, bridge.New(bridge.Foreign(f.lock), store)) }
			all := map[string]program{"other": f.other, "another": f.other, "both": both(), "both too": both(), "new": locks(t, store)}
			var last atomic.Int64
			for _, running := range [][]string{
				{"other", "another", "both", "both too"}, {"both", "both too", "new"}, {"other", "another", "both", "both too"},
			} {
				exclude(t, all, &last, running...)
			}
		})
	}
}

// TestBridgeLosesTheLockOfEachFormat ends the lock of the other library by force.
func TestBridgeLosesTheLockOfEachFormat(t *testing.T) {
	t.Parallel()
	for name, open := range formats {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := open(t)
			l := testclient.Lock(t, client(t, bridge.New(bridge.Foreign(f.lock), memlock.New())), "order/42")
			steps.Must(t, f.steal(t.Context(), "order/42"))
			testserver.Eventually(t, time.Minute, "a renewal finds that the lock is lost", func() bool {
				_ = l.Renew(t.Context())
				return l.Err() != nil
			})
			if err := l.Err(); !strings.Contains(fmt.Sprint(err), "the old store") {
				t.Errorf("the loss is %v; want one that names the old store", err)
			}
		})
	}
}

// again calls try until it gets the lock.
func again(ctx context.Context, try func() (bool, error)) error {
	for {
		if got, err := try(); got || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond): // real time: as these libraries do
		}
	}
}

// tries wants a Try of id to take the lock of order/42, or to find it taken.
func tries(t *testing.T, l bridge.ForeignLock, id string, want bool) {
	t.Helper()
	if got, err := l.Try(t.Context(), "order/42", id, lease); got != want || err != nil {
		t.Fatalf("%s: Try of the %s: %v, %v; want %v", l.Name(), id, got, err, want)
	}
}

// releases wants id to have held the lock of order/42, or a place in its line.
func releases(t *testing.T, l bridge.ForeignLock, id string) {
	t.Helper()
	if had, err := l.Release(t.Context(), "order/42", id); !had || err != nil {
		t.Errorf("%s: Release of the %s: %v, %v", l.Name(), id, had, err)
	}
}

func redisClient(t *testing.T) *redis.Client {
	rdb := redis.NewClient(&redis.Options{Addr: testserver.Redis(t).Addr()})
	t.Cleanup(func() { rdb.Close() })
	return rdb
}

func redsyncFormat(t *testing.T) format {
	rdb := redisClient(t)
	rs := redsync.New(goredis.NewPool(rdb))
	return setNX(rdb, func(ctx context.Context, key string) (func() error, fence.Token, error) {
		m := rs.NewMutex(key,
			redsync.WithExpiry(lease), redsync.WithTries(10_000), redsync.WithRetryDelay(5*time.Millisecond))
		return func() error { _, err := m.UnlockContext(ctx); return err }, 0, m.LockContext(ctx)
	})
}

func bsmFormat(t *testing.T) format {
	rdb := redisClient(t)
	locker := bsm.New(rdb)
	return setNX(rdb, func(ctx context.Context, key string) (func() error, fence.Token, error) {
		l, err := locker.Obtain(ctx, key, lease, &bsm.Options{RetryStrategy: bsm.LinearBackoff(5 * time.Millisecond)})
		return func() error { return l.Release(ctx) }, 0, err
	})
}

func setNX(rdb *redis.Client, other program) format {
	return format{
		other: other,
		lock:  setnx.New(rdb, ""),
		steal: func(ctx context.Context, key string) error { return rdb.Del(ctx, key).Err() },
	}
}

// redissonFormat is RLock with the scripts of RedissonLock.java.
func redissonFormat(t *testing.T) format {
	rdb := redisClient(t)
	lock := redis.NewScript(`
if ((redis.call('exists', KEYS[1]) == 0) or (redis.call('hexists', KEYS[1], ARGV[2]) == 1)) then
redis.call('hincrby', KEYS[1], ARGV[2], 1); redis.call('pexpire', KEYS[1], ARGV[1]); return -1; end;
return redis.call('pttl', KEYS[1]);`)
	unlock := redis.NewScript(`
if (redis.call('hexists', KEYS[1], ARGV[3]) == 0) then return -1; end;
local counter = redis.call('hincrby', KEYS[1], ARGV[3], -1);
if (counter > 0) then redis.call('pexpire', KEYS[1], ARGV[2]); return 0;
else redis.call('del', KEYS[1]); redis.call('publish', KEYS[2], ARGV[1]); return 1; end;`)
	return format{
		other: func(ctx context.Context, key string) (func() error, fence.Token, error) {
			thread := rand.Text() + ":31"
			heard := rdb.Subscribe(ctx, "redisson_lock__channel:{"+key+"}") // as RedissonLock waits
			defer heard.Close()
			if _, err := heard.Receive(ctx); err != nil {
				return nil, 0, err
			}
			for {
				left, err := lock.Run(ctx, rdb, []string{key}, lease.Milliseconds(), thread).Int64()
				if err != nil || left < 0 {
					return func() error {
						keys := []string{key, "redisson_lock__channel:{" + key + "}"}
						n, err := unlock.Run(ctx, rdb, keys, 0, lease.Milliseconds(), thread).Int()
						if err == nil && n != 1 {
							err = fmt.Errorf("unlock returned %d", n)
						}
						return err
					}, 0, err
				}
				select {
				case <-heard.Channel():
				case <-time.After(time.Duration(left) * time.Millisecond): // real time: as RedissonLock does
				}
			}
		},
		lock:  redisson.New(rdb, ""),
		steal: func(ctx context.Context, key string) error { return rdb.Del(ctx, key).Err() },
	}
}

func postgresDB(t *testing.T) *sql.DB { return open(t, "pgx", testserver.Postgres(t).URL()) }

func mariaDB(t *testing.T) *sql.DB { return dbOf(t, testserver.MariaDB(t), "root") }

// dbOf opens the database of a MariaDB for a user, who may have a password.
func dbOf(t *testing.T, s *testserver.Server, user string) *sql.DB {
	return open(t, "mysql", fmt.Sprintf("%s@tcp(%s)%s", user, s.Addr(), s.URL()[strings.LastIndexByte(s.URL(), '/'):]))
}

func open(t *testing.T, driver, dsn string) *sql.DB {
	db, err := sql.Open(driver, dsn)
	steps.Must(t, err)
	t.Cleanup(func() { db.Close() })
	return db
}

// shedlock has the statements of JdbcTemplateLockProvider with usingDbTime.
func shedlock(t *testing.T, db *sql.DB, d foreign.Dialect) format {
	table := `CREATE TABLE shedlock(name VARCHAR(64) NOT NULL, lock_until TIMESTAMP%[1]s NOT NULL,
		locked_at TIMESTAMP%[1]s NOT NULL DEFAULT CURRENT_TIMESTAMP%[1]s, locked_by VARCHAR(255) NOT NULL, PRIMARY KEY (name))`
	insert := `INSERT INTO shedlock(name, lock_until, locked_at, locked_by) VALUES($1, timezone('utc', CURRENT_TIMESTAMP) +
		interval '30 seconds', timezone('utc', CURRENT_TIMESTAMP), $2)
		ON CONFLICT (name) DO UPDATE SET lock_until = timezone('utc', CURRENT_TIMESTAMP) + interval '30 seconds',
		locked_at = timezone('utc', CURRENT_TIMESTAMP), locked_by = $2
		WHERE shedlock.name = $1 AND shedlock.lock_until <= timezone('utc', CURRENT_TIMESTAMP)`
	update, precision := "", ""
	unlock := `UPDATE shedlock SET lock_until = timezone('utc', CURRENT_TIMESTAMP) WHERE name = $1 AND locked_by = $2`
	steal := `UPDATE shedlock SET locked_by = 'somebody' WHERE name = $1`
	if d == foreign.MySQL {
		insert = `INSERT IGNORE INTO shedlock(name, locked_by, lock_until, locked_at)
			VALUES(?, ?, TIMESTAMPADD(MICROSECOND, 30000000, UTC_TIMESTAMP(3)), UTC_TIMESTAMP(3))`
		update = `UPDATE shedlock SET lock_until = TIMESTAMPADD(MICROSECOND, 30000000, UTC_TIMESTAMP(3)),
			locked_at = UTC_TIMESTAMP(3), locked_by = ? WHERE name = ? AND lock_until <= UTC_TIMESTAMP(3)`
		unlock = `UPDATE shedlock SET lock_until = UTC_TIMESTAMP(3) WHERE name = ? AND locked_by = ?`
		steal, precision = `UPDATE shedlock SET locked_by = 'somebody' WHERE name = ?`, "(3)"
	}
	steps.Must(t, steps.ErrOf(db.ExecContext(t.Context(), fmt.Sprintf(table, precision))))
	changed := func(ctx context.Context, statement string, args ...any) (bool, error) {
		r, err := db.ExecContext(ctx, statement, args...)
		if err != nil {
			return false, err
		}
		n, err := r.RowsAffected()
		return n > 0, err
	}
	return format{
		other: func(ctx context.Context, key string) (func() error, fence.Token, error) {
			by := rand.Text()
			err := again(ctx, func() (bool, error) {
				if got, err := changed(ctx, insert, key, by); got || err != nil || update == "" {
					return got, err
				}
				return changed(ctx, update, by, key)
			})
			return func() error { _, err := db.ExecContext(ctx, unlock, key, by); return err }, 0, err
		},
		lock: foreign.ShedLock(db, d, nil),
		steal: func(ctx context.Context, key string) error {
			_, err := db.ExecContext(ctx, steal, key)
			return err
		},
	}
}

func advisory(t *testing.T) format {
	db := postgresDB(t)
	return format{
		other: func(ctx context.Context, key string) (func() error, fence.Token, error) {
			return inSession(ctx, db, `SELECT pg_advisory_lock(hashtext($1))`, `SELECT pg_advisory_unlock(hashtext($1))`, key)
		},
		lock: foreign.Advisory(db, nil),
		steal: func(ctx context.Context, _ string) error {
			_, err := db.ExecContext(ctx, `SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'`)
			return err
		},
	}
}

func getLock(t *testing.T) format {
	db := mariaDB(t)
	return format{
		other: func(ctx context.Context, key string) (func() error, fence.Token, error) {
			return inSession(ctx, db, `SELECT GET_LOCK(?, 3600)`, `SELECT RELEASE_LOCK(?)`, key)
		},
		lock: foreign.GetLock(db, ""),
		steal: func(ctx context.Context, key string) error {
			var id int64
			if err := db.QueryRowContext(ctx, `SELECT IS_USED_LOCK(?)`, key).Scan(&id); err != nil {
				return err
			}
			_, err := db.ExecContext(ctx, fmt.Sprint("KILL ", id))
			return err
		},
	}
}

// inSession takes a lock in a session of its own.
func inSession(ctx context.Context, db *sql.DB, lock, unlock, key string) (func() error, fence.Token, error) {
	c, err := db.Conn(ctx)
	if err != nil {
		return nil, 0, err
	}
	var ignored any
	return func() error {
		defer c.Close()
		return c.QueryRowContext(ctx, unlock, key).Scan(&ignored)
	}, 0, c.QueryRowContext(ctx, lock, key).Scan(&ignored)
}

// etcdMutex is the package concurrency itself.
func etcdMutex(t *testing.T) format {
	etcd := etcdClient(t, clientv3.Config{Endpoints: []string{testserver.Etcd(t).Addr()}})
	return format{
		other: func(ctx context.Context, key string) (func() error, fence.Token, error) {
			s, err := concurrency.NewSession(etcd, concurrency.WithTTL(int(lease/time.Second)))
			if err != nil {
				return nil, 0, err
			}
			m := concurrency.NewMutex(s, "locks/"+key)
			return func() error { defer s.Close(); return m.Unlock(ctx) }, 0, m.Lock(ctx)
		},
		lock: etcdmutex.New(etcd, "locks/"),
		steal: func(ctx context.Context, key string) error {
			_, err := etcd.Delete(ctx, "locks/"+key+"/", clientv3.WithPrefix())
			return err
		},
	}
}

// An application that numbers its advisory locks by itself keeps its numbers.
func TestAdvisoryLockHasTheNumberOfTheApplication(t *testing.T) {
	t.Parallel()
	db := postgresDB(t)
	l := foreign.Advisory(db, func(key string) int64 { return int64(crc32.ChecksumIEEE([]byte(key))) })
	tries(t, l, "id", true)
	var got bool
	q := `SELECT pg_try_advisory_lock($1)`
	if err := db.QueryRowContext(t.Context(), q, crc32.ChecksumIEEE([]byte("order/42"))).Scan(&got); err != nil || got {
		t.Errorf("the number of the application is free: %v, %v", got, err)
	}
	releases(t, l, "id")
}

// MariaDB and MySQL count the rows that a statement changes. A renewal in the millisecond of the grant changed none,
// and the holder was told that it had lost the lock.
func TestHolderOfShedLockRenewsAtOnce(t *testing.T) {
	t.Parallel()
	l := shedlock(t, mariaDB(t), foreign.MySQL).lock
	for range 1000 {
		tries(t, l, "id", true)
		if has, err := l.Renew(t.Context(), "order/42", "id", lease); !has || err != nil {
			t.Fatalf("Renew: %v, %v", has, err)
		}
	}
}

// MariaDB cut the name of a long key: it was granted, lost at once, and never free again.
func TestKeyThatIsTooLongForShedLockIsRefused(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("ä", 65)
	for _, l := range []bridge.ForeignLock{
		shedlock(t, mariaDB(t), foreign.MySQL).lock, shedlock(t, postgresDB(t), foreign.Postgres).lock,
	} {
		if got, err := l.Try(t.Context(), long, "id", lease); got || !errors.Is(err, driver.ErrPermanent) {
			t.Errorf("Try: %v, %v; want a refusal", got, err)
		}
		if got, err := l.Try(t.Context(), long[2:], "id", lease); !got || err != nil {
			t.Errorf("Try of a key with 64 characters: %v, %v", got, err)
		}
	}
}
