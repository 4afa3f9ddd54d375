package adapters

import (
	"context"
	"errors"
	"os"
	"strconv"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/storeurl"
)

var libraries = map[string]opener{
	"fencelock-redis":     {open: openFencelock("redis://", "")},
	"fencelock-etcd":      {open: openFencelock("etcd://", "")},
	"fencelock-zookeeper": {open: openFencelock("zk://", "")},
	"fencelock-postgres":  {open: openFencelock("postgres://postgres@", "/postgres?sslmode=disable")},
	"fencelock-mariadb":   {open: openFencelock("mysql://root@", "/locks")},

	"store": {open: openStore},

	"redsync":          {"github.com/go-redsync/redsync/v4", openRedsync},
	"bsm":              {"github.com/bsm/redislock", openBsm},
	"rueidislock":      {"github.com/redis/rueidis", openRueidislock},
	"etcd-concurrency": {"go.etcd.io/etcd/client/v3", openEtcd},
	"zk":               {"github.com/go-zookeeper/zk", openZooKeeper},
	"pg_advisory_lock": {"github.com/jackc/pgx/v5", openPostgres},
	"get_lock":         {"github.com/go-sql-driver/mysql", openMariaDB},
}

// openFencelock uses the Client of the store at a URL, with its defaults.
func openFencelock(scheme, path string) func(string, time.Duration, func(string)) (library, error) {
	return func(addr string, ttl time.Duration, _ func(string)) (library, error) {
		u, err := storeurl.Parse(scheme+addr+path, storeurl.Source{Name: "the adapter"})
		if err != nil {
			return nil, err
		}
		s, err := u.Open(context.Background(), storeurl.Config{MaxConns: 4, Prepare: true, SessionTimeout: ttl})
		if err != nil {
			return nil, err
		}
		client, err := fencelock.New(s.Backend, &fencelock.Options{TTL: ttl})
		if err != nil {
			return nil, err
		}
		_, err = client.Line(context.Background(), "connects")
		return clientLock(client), err
	}
}

// EnvURL has the URL of a store, or of a bridge, for the adapter store.
const EnvURL = "FENCELOCK_STORE"

// openStore is fencelock on the store of EnvURL.
func openStore(_ string, ttl time.Duration, _ func(string)) (library, error) {
	u, err := storeurl.Parse(os.Getenv(EnvURL), storeurl.Source{Name: EnvURL})
	if err != nil {
		return nil, err
	}
	s, err := u.Open(context.Background(), storeurl.Config{MaxConns: 4})
	if err != nil {
		return nil, err
	}
	client, err := fencelock.New(s.Backend, &fencelock.Options{TTL: ttl})
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
