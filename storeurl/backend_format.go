package storeurl

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock/bridge"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/etcdlock/etcdmutex"
	"github.com/fencelock/fencelock/redislock"
	"github.com/fencelock/fencelock/redislock/redisson"
	"github.com/fencelock/fencelock/redislock/setnx"
	sqlforeign "github.com/fencelock/fencelock/sqllock/foreign"
)

// formats are the locks of other libraries that the old store of a bridge may have, and the schemes of their stores.
var (
	onRedis    = []string{"redis", "rediss", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster"}
	onPostgres = []string{"postgres", "postgresql"}
	onMySQL    = []string{"mysql", "mariadb"}

	formats = map[string][]string{
		"setnx": onRedis, "redis-semaphore": onRedis, "redisson": onRedis,
		"shedlock": slices.Concat(onPostgres, onMySQL),
		"advisory": onPostgres, "symfony": onPostgres, "get_lock": onMySQL,
		"mutex": {"etcd", "etcds"},
	}
)

// formatParameter names one of formats in the URL of the old store of a bridge.
const formatParameter = "format="

// cutFormat returns raw without its parameter format. A second one stays.
func cutFormat(raw string) (rest, format string) {
	before, query, ok := strings.Cut(raw, "?")
	if !ok {
		return raw, ""
	}
	others := slices.DeleteFunc(strings.Split(query, "&"), func(p string) bool {
		value, is := strings.CutPrefix(p, formatParameter)
		if is && format == "" {
			format = value
			return true
		}
		return false
	})
	switch {
	case format == "":
		return raw, ""
	case len(others) == 0:
		return before, format
	}
	return before + "?" + strings.Join(others, "&"), format
}

// withFormat is the opposite of cutFormat.
func withFormat(raw, format string) string {
	switch {
	case format == "":
		return raw
	case strings.Contains(raw, "?"):
		return raw + "&" + formatParameter + format
	}
	return raw + "?" + formatParameter + format
}

// parseOld reads the URL of the old store of a bridge.
func parseOld(raw string, from Source) (*URL, error) {
	raw, format := cutFormat(raw)
	if _, second := cutFormat(raw); second != "" {
		return nil, fmt.Errorf("the old store of the bridge URL in %s has the parameter format more than once",
			from.Name)
	}
	u, err := Parse(raw, from)
	if err != nil || format == "" {
		return u, err
	}
	schemes, known := formats[format]
	switch {
	case !known:
		return nil, fmt.Errorf("the bridge URL in %s has an unknown format; known are %s", from.Name,
			strings.Join(slices.Sorted(maps.Keys(formats)), ", "))
	case !slices.Contains(schemes, u.Scheme):
		return nil, fmt.Errorf("the bridge URL in %s: %s is not a format of %s, but of %s", from.Name, format, u.Scheme,
			strings.Join(schemes, ", "))
	}
	u.format = format
	u.text += " as " + format
	return u, nil
}

// openFormat opens the locks of another library, as the old store of a bridge.
func (u *URL) openFormat(ctx context.Context, c *Config) (*Store, error) {
	var l bridge.ForeignLock
	s := &Store{}
	switch formats[u.format][0] {
	case "redis":
		rdb, err := u.Redis(ctx, *c)
		if err != nil {
			return nil, err
		}
		keys := redislock.New(rdb, nil)
		s.close, l = func() { _ = keys.Close(); _ = rdb.Close() }, u.lockOnRedis(rdb)
		s.ping = u.pingFormat(u.pingServer(rdb, keys))
	case "etcd":
		config, err := u.etcdConfig(c)
		if err != nil {
			return nil, err
		}
		etcd, err := clientv3.New(*config)
		if err != nil {
			return nil, u.admittedByEtcd(err)
		}
		s.ping = func(ctx context.Context) error {
			_, err := etcd.Get(ctx, u.Path+"/")
			return u.admittedByEtcd(err)
		}
		s.close, l = func() { _ = etcd.Close() }, etcdmutex.New(etcd, u.Path+"/")
	default:
		db, err := u.sessions()
		if err != nil {
			return nil, err
		}
		db.SetConnMaxLifetime(connLife)
		s.close = func() { _ = db.Close() }
		l, s.ping = u.lockOnSQL(db)
	}
	s.Backend = bridge.Foreign(l)
	return s, nil
}

// lockOnSQL returns a lock, and how to ask for it without taking one that somebody wants.
func (u *URL) lockOnSQL(db *sql.DB) (l bridge.ForeignLock, ping func(context.Context) error) {
	switch u.format {
	case "shedlock":
		dialect := sqlforeign.Postgres
		if slices.Contains(onMySQL, u.Scheme) {
			dialect = sqlforeign.MySQL
		}
		l = sqlforeign.ShedLock(db, dialect, nil)
		return l, func(ctx context.Context) error {
			_, err := l.Renew(ctx, "ping", "nobody", time.Second)
			return err
		}
	case "advisory":
		l = sqlforeign.Advisory(db, nil)
	case "symfony":
		l = sqlforeign.Advisory(db, func(key string) int64 { return int64(crc32.ChecksumIEEE([]byte(key))) })
	default:
		l = sqlforeign.GetLock(db, "")
	}
	return l, func(ctx context.Context) error {
		id := rand.Text()
		_, err := l.Try(ctx, "fencelock ping", id, time.Second)
		if err == nil {
			_, err = l.Release(ctx, "fencelock ping", id)
		}
		return err
	}
}

// sessions opens the database of the locks of a session, or of ShedLock's table.
func (u *URL) sessions() (*sql.DB, error) {
	if u.format == "shedlock" || !slices.Contains(onPostgres, u.Scheme) {
		return u.SQL()
	}
	config, err := u.postgresConfig(&Config{Prepare: true})
	if err != nil {
		return nil, err
	}
	return stdlib.OpenDB(*config, stdlib.OptionAfterConnect(u.isSession)), nil
}

// isSession refuses a connection whose locks would exclude nobody: a pooler gives one session to many clients, and a
// standby grants locks of a session that its primary has granted to another. A primary keeps being one until the
// connection ends.
func (u *URL) isSession(ctx context.Context, conn *pgx.Conn) error {
	err := unpooled(ctx, conn)
	if errors.Is(err, errPooler) {
		return driver.Permanent(badConfig("%s is a pooler, which gives one session to many clients, so its locks "+
			"exclude nobody; name the server itself in the URL", u))
	}
	if err != nil {
		return err
	}
	var standby bool
	if err := conn.QueryRow(ctx, "SELECT pg_is_in_recovery()").Scan(&standby); err != nil {
		return err
	}
	if standby {
		return driver.Permanent(badConfig("%s is a standby, whose locks do not exclude those of its primary; name the "+
			"primary in the URL", u))
	}
	return nil
}

// pingFormat is ping, for a user who may lack rights on keys of fencelock.
func (u *URL) pingFormat(ping func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		err := ping(ctx)
		if errors.Is(err, driver.ErrPermanent) && strings.Contains(err.Error(), "NOPERM") {
			return nil
		}
		return err
	}
}

func (u *URL) lockOnRedis(rdb redis.UniversalClient) bridge.ForeignLock {
	switch u.format {
	case "redisson":
		return redisson.New(rdb, "")
	case "redis-semaphore":
		return setnx.New(rdb, "mutex:")
	}
	return setnx.New(rdb, "")
}
