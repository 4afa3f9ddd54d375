package main

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencelock/fencelock/redislock"
)

// checkSentinel reads redis+sentinel://host:port,host:port/master-name/db. All sentinels
// may be named, and any of them is enough. Complaints do not repeat what they are about.
func checkSentinel(p *place) error {
	if err := checkRedisHosts(p, "26379"); err != nil {
		return err
	}
	name, db, has := strings.Cut(strings.Trim(p.url.Path, "/"), "/")
	if name == "" {
		return usage("the redis+sentinel URL does not say what the sentinels call the master; write %s", p.scheme.form)
	}
	if !has {
		db = "0"
	}
	if n, err := strconv.Atoi(db); err != nil || n < 0 {
		return usage("what follows the name of the master is not the number of a database; write %s, and percent-encode special characters of a password", p.scheme.form)
	}
	p.url.Path = name + "/" + db
	p.text = p.scheme.name + " " + p.url.Host + "/" + name
	if db != "0" {
		p.text += "/" + db
	}
	return nil
}

// checkCluster reads redis+cluster://host:port,host:port. Some nodes are enough: they
// know the others.
func checkCluster(p *place) error {
	if err := checkRedisHosts(p, "6379"); err != nil {
		return err
	}
	if strings.Trim(p.url.Path, "/") != "" {
		return usage("a Redis Cluster has no databases: nothing follows the hosts; write %s, and percent-encode special characters of a password", p.scheme.form)
	}
	p.url.Path = ""
	p.text = p.scheme.name + " " + p.url.Host
	return nil
}

func checkRedisHosts(p *place, port string) error {
	var hosts []string
	for _, h := range strings.Split(p.url.Host, ",") {
		host, own, err := net.SplitHostPort(h)
		if err != nil {
			host, own = strings.Trim(h, "[]"), port
		}
		if host == "" || own == "" {
			return usage("the %s URL has no host, or a comma too many; write %s", p.scheme.name, p.scheme.form)
		}
		hosts = append(hosts, net.JoinHostPort(host, own))
	}
	p.url.Host = strings.Join(hosts, ",")
	return nil
}

// openSentinel gives the user and the password to the servers, and to the sentinels
// only if these ask for one: one that has none refuses to be given one.
func openSentinel(ctx context.Context, p *place) (*store, error) {
	name, db, _ := strings.Cut(p.url.Path, "/")
	o := &redis.FailoverOptions{
		MasterName:    name,
		SentinelAddrs: strings.Split(p.url.Host, ","),
		Username:      p.secret.user,
		Password:      p.secret.password,

		ContextTimeoutEnabled: true,
		DisableIdentity:       true,
	}
	o.DB, _ = strconv.Atoi(db)
	redis.SetLogger(noLog{})
	err := askSentinels(ctx, o)
	var answer redis.Error
	if errors.As(err, &answer) && strings.HasPrefix(answer.Error(), "NOAUTH") && o.Password != "" {
		o.SentinelUsername, o.SentinelPassword = o.Username, o.Password
		err = askSentinels(ctx, o)
	}
	switch {
	case errors.Is(err, redis.Nil):
		return nil, fail(exitConfig, "the sentinels of %s know no master of that name; check %s", p, envURL)
	case errors.As(err, &answer) && unauthorised(answer):
		return nil, deniedError{given: p.secret.password != ""}
	}
	return openRedisGroup(ctx, p, redis.NewFailoverClient(o))
}

// askSentinels asks for the master until one of the sentinels answers: the client would
// ask all of them for as long as it may.
func askSentinels(ctx context.Context, o *redis.FailoverOptions) error {
	var err error
	for _, addr := range o.SentinelAddrs {
		c := redis.NewSentinelClient(&redis.Options{
			Addr: addr, Username: o.SentinelUsername, Password: o.SentinelPassword,
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

func openCluster(ctx context.Context, p *place) (*store, error) {
	s, err := openRedisGroup(ctx, p, redis.NewClusterClient(&redis.ClusterOptions{
		Addrs:    strings.Split(p.url.Host, ","),
		Username: p.secret.user,
		Password: p.secret.password,

		ContextTimeoutEnabled: true,
		DisableIdentity:       true,
	}))
	if err != nil && strings.Contains(err.Error(), "cluster support disabled") {
		return nil, fail(exitConfig, "%s is no Cluster; write redis:// for a single server, or redis+sentinel://", p)
	}
	return s, err
}

// openRedisGroup asks once whether anybody is there, and takes over rdb.
func openRedisGroup(ctx context.Context, p *place, rdb redis.UniversalClient) (*store, error) {
	redis.SetLogger(noLog{})
	if err := rdb.Ping(ctx).Err(); err != nil {
		_ = rdb.Close()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		var answer redis.Error
		if errors.As(err, &answer) && unauthorised(answer) {
			return nil, deniedError{given: p.secret.password != ""}
		}
		return nil, err
	}
	b := redislock.New(rdb, nil)
	return &store{b, func() { _ = b.Close(); _ = rdb.Close() }}, nil
}
