package storeurl

import (
	"context"
	"errors"
	"fmt"
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
		return fmt.Errorf("the redis+sentinel URL does not say what the sentinels call the master; write %s",
			u.scheme.form)
	}
	u.text = u.Scheme + " " + u.Host + "/" + name
	if err := u.numbered(db, "the name of the master"); err != nil {
		return err
	}
	u.Path = name + "/" + u.Path
	return nil
}

func openSentinel(ctx context.Context, u *URL, c *Config) (*Store, error) {
	o := u.sentinelOptions(ctx, c)
	rdb := redis.NewFailoverClient(o)
	ping := u.pingRedis(rdb)
	return &Store{
		Backend: redislock.New(rdb, nil),
		ping: func(ctx context.Context) error {
			err := askSentinels(ctx, o)
			var answer redis.Error
			switch {
			case errors.Is(err, redis.Nil):
				return badConfig("the sentinels of %s know no master of that name; check %s", u, EnvURL)
			case errors.As(err, &answer):
				return u.admitted(err)
			}
			return ping(ctx)
		},
		close: func() { _ = rdb.Close() },
	}, nil
}

// sentinelOptions gives the user and the password to the servers, and to the sentinels
// only if these ask for one: one that has none refuses to be given one.
func (u *URL) sentinelOptions(ctx context.Context, c *Config) *redis.FailoverOptions {
	redis.SetLogger(noRedisLog{})
	name, db, _ := strings.Cut(u.Path, "/")
	o := &redis.FailoverOptions{
		MasterName: name, SentinelAddrs: strings.Split(u.Host, ","), Username: u.user, Password: u.password,
		Dialer: c.Dial, DialTimeout: c.DialTimeout, ContextTimeoutEnabled: true, DisableIdentity: true,
	}
	o.DB, _ = strconv.Atoi(db)
	if o.Password == "" {
		return o
	}
	var answer redis.Error
	if err := askSentinels(ctx, o); errors.As(err, &answer) && strings.HasPrefix(answer.Error(), "NOAUTH") {
		o.SentinelUsername, o.SentinelPassword = o.Username, o.Password
	}
	return o
}

// askSentinels asks for the master until one of the sentinels answers: the client would
// ask all of them for as long as it may.
func askSentinels(ctx context.Context, o *redis.FailoverOptions) error {
	var err error
	for _, addr := range o.SentinelAddrs {
		c := redis.NewSentinelClient(&redis.Options{
			Addr: addr, Username: o.SentinelUsername, Password: o.SentinelPassword, Dialer: o.Dialer,
			DialTimeout: time.Second, ReadTimeout: time.Second, MaxRetries: -1, DialerRetries: 1,
			ContextTimeoutEnabled: true, DisableIdentity: true,
		})
		err = c.GetMasterAddrByName(ctx, o.MasterName).Err()
		_ = c.Close()
		var answer redis.Error
		if err == nil || errors.As(err, &answer) {
			return err
		}
	}
	return err
}
