package storeurl

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/fencelock/fencelock/redislock"
)

// checkRedis reads redis://host:port/db.
func checkRedis(u *URL, rest *url.URL) error {
	if err := u.host(rest, "6379"); err != nil {
		return err
	}
	u.text = u.Scheme + " " + u.Host
	return u.numbered(strings.TrimPrefix(rest.Path, "/"), "the host")
}

// numbered reads the number of a Redis database, which follows something. Complaints do
// not repeat what they are about: part of a password with a slash in it looks like one.
func (u *URL) numbered(db, something string) error {
	if db == "" {
		db = "0"
	}
	if n, err := strconv.Atoi(db); err != nil || n < 0 {
		return fmt.Errorf("what follows %s of the %s URL is not the number of a database; write %s, "+
			"and percent-encode special characters of a password", something, u.Scheme, u.scheme.form)
	}
	u.Path = db
	if db != "0" {
		u.text += "/" + db
	}
	return nil
}

func openRedis(_ context.Context, u *URL, c *Config) (*Store, error) {
	rdb := u.redisClient(c)
	b := redislock.New(rdb, &redislock.Options{Member: c.of()})
	return &Store{Backend: b, ping: u.pingRedis(rdb), close: func() { _ = rdb.Close() }}, nil
}

// Redis returns a client for a redis:, rediss:, redis+sentinel: or redis+cluster: URL.
func (u *URL) Redis(ctx context.Context, c Config) redis.UniversalClient {
	switch u.Scheme {
	case "redis+sentinel":
		return redis.NewFailoverClient(u.sentinelOptions(ctx, &c))
	case "redis+cluster":
		return u.clusterClient(&c)
	}
	return u.redisClient(&c)
}

func (u *URL) redisClient(c *Config) *redis.Client {
	redis.SetLogger(noRedisLog{})
	db, _ := strconv.Atoi(u.Path)
	o := &redis.Options{
		Addr: u.Host, DB: db, Username: u.user, Password: u.password,
		Dialer: c.Dial, DialTimeout: c.DialTimeout, ContextTimeoutEnabled: true, DisableIdentity: true,
	}
	if u.Scheme == "rediss" {
		o.TLSConfig = &tls.Config{ServerName: u.hostname(), MinVersion: tls.VersionTLS12}
		if c.Dial != nil { // go-redis leaves TLS to a dialer that it is given
			o.Dialer = tlsDialer(c.Dial, o.TLSConfig)
		}
	}
	return redis.NewClient(o)
}

type dialFunc = func(ctx context.Context, network, addr string) (net.Conn, error)

func tlsDialer(dial dialFunc, config *tls.Config) dialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		secure := tls.Client(c, config)
		if err := secure.HandshakeContext(ctx); err != nil {
			_ = c.Close()
			return nil, err
		}
		return secure, nil
	}
}

func (u *URL) pingRedis(rdb redis.UniversalClient) func(context.Context) error {
	return func(ctx context.Context) error { return u.admitted(rdb.Ping(ctx).Err()) }
}

// admitted makes a DeniedError of Redis's ways to say that it does not let us in.
func (u *URL) admitted(err error) error {
	var answer redis.Error
	if !errors.As(err, &answer) {
		return err
	}
	for _, prefix := range []string{
		"NOAUTH", "WRONGPASS", "NOPERM", "ERR AUTH", "ERR invalid password", "ERR Client sent AUTH",
	} {
		if strings.HasPrefix(answer.Error(), prefix) {
			return u.denied()
		}
	}
	return err
}

// noRedisLog keeps the client library's own messages off the terminal: what matters
// comes back as an error.
type noRedisLog struct{}

func (noRedisLog) Printf(context.Context, string, ...any) {}
