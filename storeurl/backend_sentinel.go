package storeurl

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencelock/fencelock/redislock"
)

// checkSentinel reads redis+sentinel://host:port,host:port/master-name/db. Any of the
// sentinels is enough.
func checkSentinel(u *URL, rest *url.URL) error {
	if err := u.hosts(rest, "26379"); err != nil {
		return err
	}
	name, db, _ := strings.Cut(strings.Trim(rest.Path, "/"), "/")
	if name == "" {
		return fmt.Errorf("the %s URL does not say what the sentinels call the master; write %s",
			u.Scheme, u.scheme.form)
	}
	u.text = u.Scheme + " " + u.Host + "/" + name
	if err := u.numbered(db, "the name of the master"); err != nil {
		return err
	}
	u.Path = name + "/" + u.Path
	_, err := u.sentinelSettings()
	return err
}

// sentinelSettings reads the parameters of the URL, which are those of go-redis.
func (u *URL) sentinelSettings() (*redis.FailoverOptions, error) {
	for _, own := range []string{"addr", "master_name"} {
		if u.settings[own] != "" {
			return nil, fmt.Errorf("the %s URL has an unknown parameter %s; write %s", u.Scheme, own, u.scheme.form)
		}
	}
	o, err := redis.ParseFailoverURL("rediss://h?" + u.query())
	return o, u.settingsError(err)
}

func openSentinel(ctx context.Context, u *URL, c *Config) (*Store, error) {
	o, err := u.sentinelOptions(ctx, c)
	if err != nil {
		return nil, err
	}
	rdb := redis.NewFailoverClient(o)
	b := redislock.New(rdb, nil)
	ping := u.pingServer(rdb, b)
	return &Store{
		Backend: b,
		ping: func(ctx context.Context) error {
			err := findMaster(ctx, o)
			var answer redis.Error
			switch {
			case errors.Is(err, redis.Nil):
				return badConfig("the sentinels of %s know no master of that name; check the URL", u)
			case errors.As(err, &answer) && strings.HasPrefix(answer.Error(), "ERR unknown command"):
				return badConfig("%s is not a Sentinel; write redis:// for a single server, or redis+cluster://", u)
			case errors.As(err, &answer):
				return u.admitted(err)
			}
			return ping(ctx)
		},
		failover: func(ctx context.Context) time.Duration { return sentinelFailover(ctx, o) },
		close:    func() { _ = rdb.Close() },
	}, nil
}

// sentinelOptions gives the user and the password to the servers, and to the sentinels
// only if these ask for one: one that has none refuses to be given one.
func (u *URL) sentinelOptions(ctx context.Context, c *Config) (*redis.FailoverOptions, error) {
	redis.SetLogger(noRedisLog{})
	o, err := u.sentinelSettings()
	if err != nil {
		return nil, err
	}
	name, db, _ := strings.Cut(u.Path, "/")
	o.MasterName, o.SentinelAddrs = name, strings.Split(u.Host, ",")
	o.Username, o.Password = u.user, u.password
	o.DB, _ = strconv.Atoi(db)
	o.ContextTimeoutEnabled, o.DisableIdentity = true, true
	c.oneConn(&o.MaxIdleConns, &o.PipelinePoolSize)
	if c.DialTimeout != 0 {
		o.DialTimeout = c.DialTimeout
	}
	if o.TLSConfig, err = u.redisTLS(o.TLSConfig.InsecureSkipVerify); err != nil {
		return nil, err
	}
	o.Dialer = u.redisDialer(c, o.TLSConfig, o.DialTimeout)
	if o.Password == "" {
		return o, nil
	}
	var answer redis.Error
	if err := findMaster(ctx, o); errors.As(err, &answer) && strings.HasPrefix(answer.Error(), "NOAUTH") {
		o.SentinelUsername, o.SentinelPassword = o.Username, o.Password
	}
	return o, nil
}

// findMaster asks whether the sentinels know the master.
func findMaster(ctx context.Context, o *redis.FailoverOptions) error {
	return askSentinels(ctx, o, func(c *redis.SentinelClient) error {
		return c.GetMasterAddrByName(ctx, o.MasterName).Err()
	})
}

// sentinelElection is how long sentinels take to agree and to promote a replica, once they
// have found the master dead.
const sentinelElection = 2 * time.Second

// sentinelFailover returns 0 if no sentinel says when a master counts as dead.
func sentinelFailover(ctx context.Context, o *redis.FailoverOptions) time.Duration {
	ms := 0
	err := askSentinels(ctx, o, func(c *redis.SentinelClient) error {
		settings, err := c.Master(ctx, o.MasterName).Result()
		ms, _ = strconv.Atoi(settings["down-after-milliseconds"])
		return err
	})
	if err != nil || ms <= 0 {
		return 0
	}
	return time.Duration(ms)*time.Millisecond + sentinelElection
}

// askSentinels asks one after the other until one of them answers: the client would ask all of
// them for as long as it may.
func askSentinels(ctx context.Context, o *redis.FailoverOptions, ask func(c *redis.SentinelClient) error) error {
	var err error
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		return o.Dialer(ctx, network, addr)
	}
	for _, addr := range o.SentinelAddrs {
		c := redis.NewSentinelClient(&redis.Options{
			Addr: addr, Username: o.SentinelUsername, Password: o.SentinelPassword, Dialer: dial,
			TLSConfig: o.TLSConfig, ReadTimeout: time.Second,
			MaxRetries: -1, DialerRetries: 1,
			ContextTimeoutEnabled: true, DisableIdentity: true,
		})
		err = ask(c)
		_ = c.Close()
		var answer redis.Error
		if err == nil || errors.As(err, &answer) {
			return err
		}
	}
	return err
}
