package storeurl

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/redislock"
)

// checkCluster reads redis+cluster://host:port,host:port. Some nodes are enough: they
// know the others.
func checkCluster(u *URL, rest *url.URL) error {
	if err := u.hosts(rest, "6379"); err != nil {
		return err
	}
	if strings.Trim(rest.Path, "/") != "" {
		return fmt.Errorf("a Redis Cluster has no databases: nothing follows the hosts; write %s, "+
			"and percent-encode special characters of a password", u.scheme.form)
	}
	u.text = u.Scheme + " " + u.Host
	_, err := u.clusterSettings()
	return err
}

// clusterSettings reads the parameters of the URL, which are those of go-redis.
func (u *URL) clusterSettings() (*redis.ClusterOptions, error) {
	o, err := redis.ParseClusterURL("rediss://h?" + u.query())
	return o, u.settingsError(err)
}

func openCluster(_ context.Context, u *URL, c *Config) (*Store, error) {
	rdb, err := u.clusterClient(c)
	if err != nil {
		return nil, err
	}
	ping := u.pingRedis(rdb)
	return &Store{
		Backend: redislock.New(rdb, nil),
		ping: func(ctx context.Context) error {
			err := ping(ctx)
			switch {
			case err == nil:
				return nil
			case strings.Contains(err.Error(), "cluster support disabled"):
				return badConfig("%s is no Cluster; write redis:// for a single server, or redis+sentinel://", u)
			case strings.Contains(err.Error(), "cluster has no nodes"): // go-redis, of an answer without slots
				err = fmt.Errorf("no node has slots yet; see redis-cli --cluster create (%w)", err)
				return driver.Refused(err)
			}
			return err
		},
		close: func() { _ = rdb.Close() },
	}, nil
}

func (u *URL) clusterClient(c *Config) (*redis.ClusterClient, error) {
	redis.SetLogger(noRedisLog{})
	o, err := u.clusterSettings()
	if err != nil {
		return nil, err
	}
	o.Addrs, o.Username, o.Password = strings.Split(u.Host, ","), u.user, u.password
	o.ContextTimeoutEnabled, o.DisableIdentity = true, true
	c.oneConn(&o.MaxIdleConns, &o.PipelinePoolSize)
	if c.DialTimeout != 0 {
		o.DialTimeout = c.DialTimeout
	}
	if o.TLSConfig, err = u.redisTLS(false); err != nil {
		return nil, err
	}
	o.Dialer = u.redisDialer(c, o.TLSConfig, o.DialTimeout)
	return redis.NewClusterClient(o), nil
}
