package storeurl

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	"github.com/redis/go-redis/v9"

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
	return nil
}

func openCluster(_ context.Context, u *URL, c *Config) (*Store, error) {
	rdb := u.clusterClient(c)
	ping := u.pingRedis(rdb)
	return &Store{
		Backend: redislock.New(rdb, nil),
		ping: func(ctx context.Context) error {
			err := ping(ctx)
			if err != nil && strings.Contains(err.Error(), "cluster support disabled") {
				return badConfig("%s is no Cluster; write redis:// for a single server, or redis+sentinel://", u)
			}
			return err
		},
		close: func() { _ = rdb.Close() },
	}, nil
}

func (u *URL) clusterClient(c *Config) *redis.ClusterClient {
	redis.SetLogger(noRedisLog{})
	return redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: strings.Split(u.Host, ","), Username: u.user, Password: u.password,
		Dialer: c.Dial, DialTimeout: c.DialTimeout, ContextTimeoutEnabled: true, DisableIdentity: true,
	})
}
