package storeurl

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/driverutil"
	"github.com/fencelock/fencelock/redislock"
)

// checkRedis reads redis://host:port/db.
func checkRedis(u *URL, rest *url.URL) error {
	if err := u.foreign(foreignRedis); err != nil {
		return err
	}
	socket, err := u.socket(rest, "socket")
	switch {
	case err != nil:
		return err
	case socket && u.scheme.tls:
		return errors.New("a socket is not encrypted; write unix:///path/redis.sock?db=0")
	case !socket:
		err = u.host(rest, "6379")
	}
	if err != nil {
		return err
	}
	u.text = u.Scheme + " " + u.Host
	if err := u.numbered(strings.TrimPrefix(rest.Path, "/"), "the host"); err != nil {
		return err
	}
	_, err = u.redisSettings()
	return err
}

// redisSettings reads the parameters of the URL, which are those of go-redis.
func (u *URL) redisSettings() (*redis.Options, error) {
	if u.settings["skip_verify"] != "" && !u.scheme.tls {
		return nil, fmt.Errorf("a connection to %s: is not encrypted, so skip_verify has no meaning", u.Scheme)
	}
	o, err := redis.ParseURL("rediss://h?" + u.query())
	return o, u.settingsError(err)
}

func (u *URL) query() string {
	q := url.Values{}
	for name, value := range u.settings {
		q.Set(name, value)
	}
	return q.Encode()
}

// settingsError says in our words what go-redis says of a parameter.
func (u *URL) settingsError(err error) error {
	if err == nil {
		return nil
	}
	text := strings.TrimPrefix(err.Error(), "redis: ")
	if name, ok := strings.CutPrefix(text, "unexpected option: "); ok {
		return fmt.Errorf("the %s URL has an unknown parameter %s; the known ones are those of go-redis, "+
			"and with rediss: %s", u.Scheme, name, strings.Join(tlsNames, ", "))
	}
	return fmt.Errorf("the parameters of the %s URL: %s", u.Scheme, text)
}

// numbered reads the number of a Redis database, which follows something. Complaints do
// not repeat what they are about: part of a password with a slash in it looks like one.
func (u *URL) numbered(db, something string) error {
	if own, ok := u.settings["db"]; ok && (db == "" || db == own) {
		db = own
	} else if ok {
		return fmt.Errorf("the %s URL names two databases: one behind %s, one with db=", u.Scheme, something)
	}
	delete(u.settings, "db")
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
	rdb, err := u.redisClient(c)
	if err != nil {
		return nil, err
	}
	b := redislock.New(rdb, &redislock.Options{Member: c.of()})
	return &Store{Backend: b, ping: u.pingServer(rdb, b), close: func() { _ = rdb.Close() }}, nil
}

// Redis returns a client for a URL of a Redis server, of sentinels or of a Cluster.
func (u *URL) Redis(ctx context.Context, c Config) (redis.UniversalClient, error) {
	switch {
	case strings.HasSuffix(u.Scheme, "+sentinel"):
		o, err := u.sentinelOptions(ctx, &c)
		if err != nil {
			return nil, err
		}
		return redis.NewFailoverClient(o), nil
	case strings.HasSuffix(u.Scheme, "+cluster"):
		return u.clusterClient(&c)
	}
	return u.redisClient(&c)
}

func (u *URL) redisClient(c *Config) (*redis.Client, error) {
	redis.SetLogger(noRedisLog{})
	o, err := u.redisSettings()
	if err != nil {
		return nil, err
	}
	o.Addr, o.Username, o.Password = u.Host, u.user, u.password
	if u.onSocket() {
		o.Network = "unix"
	}
	o.DB, _ = strconv.Atoi(u.Path)
	o.ContextTimeoutEnabled, o.DisableIdentity = true, true
	c.oneConn(&o.MaxIdleConns, &o.PipelinePoolSize)
	if c.DialTimeout != 0 {
		o.DialTimeout = c.DialTimeout
	}
	if o.TLSConfig, err = u.redisTLS(o.TLSConfig.InsecureSkipVerify); err != nil {
		return nil, err
	}
	if o.TLSConfig != nil {
		o.TLSConfig.ServerName = u.hostname()
	}
	o.Dialer = u.redisDialer(c, o.TLSConfig, o.DialTimeout)
	o.OnConnect = refuseReplica
	return redis.NewClient(o), nil
}

// replicaError refuses a replica that takes writes, with the error of a read-only one.
type replicaError struct{}

func (replicaError) Error() string {
	return "READONLY this server is a replica that takes writes" // to package redislock, which says what to do
}

// RedisError makes it an answer of the server to go-redis.
func (replicaError) RedisError() {}

// refuseReplica refuses a connection to a replica that takes writes. One that does not refuses them
// itself. A user who may not ask is let in.
func refuseReplica(ctx context.Context, conn *redis.Conn) error {
	info, err := conn.Info(ctx, "replication").Result()
	if errors.As(err, new(redis.Error)) && !errors.As(err, new(turnedAway)) {
		return nil
	}
	if strings.Contains(info, "role:slave") && strings.Contains(info, "slave_read_only:0") {
		return replicaError{}
	}
	return err
}

// redisTLS is nil for a scheme without TLS.
func (u *URL) redisTLS(skipVerify bool) (*tls.Config, error) {
	if !u.scheme.tls {
		return nil, nil
	}
	config, err := u.tlsConfig()
	if err != nil {
		return nil, err
	}
	config.InsecureSkipVerify = skipVerify
	return config, nil
}

// redisDialer dials, also with TLS, which go-redis leaves to a dialer that it is given.
func (u *URL) redisDialer(c *Config, config *tls.Config, timeout time.Duration) dialFunc {
	dial := c.Dial
	if dial == nil {
		dial = redis.NewDialer(&redis.Options{DialTimeout: cmp.Or(timeout, 5*time.Second)})
	}
	dial = tellingWhy(dial)
	if config == nil {
		return dial
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		own := config.Clone()
		if own.ServerName == "" {
			own.ServerName, _, _ = net.SplitHostPort(addr)
		}
		return tlsDialer(dial, own)(ctx, network, addr)
	}
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
	return func(ctx context.Context) error {
		err := u.admitted(rdb.Ping(ctx).Err())
		if answer, ok := err.(redis.Error); ok {
			return driver.Refused(answer)
		}
		return err
	}
}

// pingServer also asks for keys, of which a node of a Cluster refuses most. What the server
// refuses for now is not looked at: it answers.
func (u *URL) pingServer(rdb redis.UniversalClient, b *redislock.Backend) func(context.Context) error {
	ping := u.pingRedis(rdb)
	return func(ctx context.Context) error {
		err := ping(ctx)
		if errors.As(err, new(replicaError)) {
			return badConfig("%s is a replica that takes writes: locks on it do not exclude those on its master; "+
				"connect to the master, and set replica-read-only to yes", u.Host)
		}
		if err != nil {
			return err
		}
		err = b.Ping(ctx)
		if driverutil.RefusedForNow(err) {
			return nil
		}
		return err
	}
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
	if strings.HasPrefix(answer.Error(), "DENIED") {
		return &DeniedError{Given: u.password != "", says: "it takes clients of its own host alone, because it has " +
			"no password (protected-mode); give it one (requirepass), and put the same into " + EnvPassword}
	}
	if strings.HasPrefix(answer.Error(), "ERR DB index is out of range") {
		return badConfig("%s has no database %s; check the number at the end of the URL, "+
			"or the server's setting databases", u.Host, u.Path)
	}
	return err
}

// noRedisLog keeps the client library's own messages off the terminal: what matters
// comes back as an error.
type noRedisLog struct{}

func (noRedisLog) Printf(context.Context, string, ...any) {}
