package adapters

import (
	"context"
	"database/sql"
	"errors"
	"hash/crc32"
	"os"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/bridge"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/etcdlock/etcdmutex"
	"github.com/fencelock/fencelock/redislock/setnx"
	"github.com/fencelock/fencelock/sqllock/foreign"
	"github.com/fencelock/fencelock/storeurl"
)

// EnvNew has the URL of the new store of a bridge, or that of a bridge; the address is that of the old one.
const EnvNew = "FENCELOCK_BRIDGE_NEW"

// openStore is fencelock on the store of EnvNew alone.
func openStore(_ string, ttl time.Duration, _ func(string)) (library, error) {
	return openBridge(nil, ttl)
}

// openSetNX is fencelock on a bridge from SET NX PX.
func openSetNX(addr string, ttl time.Duration, _ func(string)) (library, error) {
	return openBridge(setnx.New(redis.NewClient(&redis.Options{Addr: addr}), ""), ttl)
}

// openSemaphore is fencelock on a bridge from the Mutex of redis-semaphore.
func openSemaphore(addr string, ttl time.Duration, _ func(string)) (library, error) {
	return openBridge(setnx.New(redis.NewClient(&redis.Options{Addr: addr}), "mutex:"), ttl)
}

// openSymfony is fencelock on a bridge from Symfony's PostgreSqlStore.
func openSymfony(addr string, ttl time.Duration, _ func(string)) (library, error) {
	db, err := sql.Open("pgx", "postgres://postgres@"+addr+"/postgres?sslmode=disable")
	if err != nil {
		return nil, err
	}
	number := func(key string) int64 { return int64(crc32.ChecksumIEEE([]byte(key))) }
	return openBridge(foreign.Advisory(db, number), ttl)
}

// openMutex is fencelock on a bridge from etcd's Mutex.
func openMutex(addr string, ttl time.Duration, _ func(string)) (library, error) {
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{addr}, DialTimeout: 5 * time.Second})
	if err != nil {
		return nil, err
	}
	return openBridge(etcdmutex.New(etcd, "/locks/"), ttl)
}

func openBridge(old bridge.ForeignLock, ttl time.Duration) (library, error) {
	u, err := storeurl.Parse(os.Getenv(EnvNew), storeurl.Source{Name: EnvNew})
	if err != nil {
		return nil, err
	}
	s, err := u.Open(context.Background(), storeurl.Config{MaxConns: 4})
	if err != nil {
		return nil, err
	}
	var b driver.Backend = s.Backend
	if old != nil {
		b = bridge.New(bridge.Foreign(old), b)
	}
	client, err := fencelock.New(b, &fencelock.Options{TTL: ttl})
	return clientLock(client), err
}

// clientLock takes the locks of a Client.
func clientLock(c *fencelock.Client) lockFunc {
	return func(ctx context.Context, key string, _ time.Duration) (held, error) {
		l, err := c.Lock(ctx, key)
		if err != nil {
			return held{}, err
		}
		token := strconv.FormatInt(int64(l.Token()), 10)
		return held{token: token, ended: l.Context().Done(), unlock: func() (bool, error) {
			err := l.Release(context.Background())
			return errors.Is(err, fencelock.ErrLost), err
		}}, nil
	}
}
