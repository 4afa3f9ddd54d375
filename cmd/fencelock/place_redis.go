package main

import (
	"context"
	"crypto/tls"
	"net"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/redislock"
)

// checkRedis reads redis://host:port/db. Complaints do not repeat what they are
// about: part of a password with a slash in it looks like a database.
func checkRedis(p *place) error {
	host, port := p.url.Hostname(), p.url.Port()
	if host == "" {
		return usage("the redis URL has no host; write %s", p.scheme.form)
	}
	if port == "" {
		port = "6379"
	}
	db := strings.TrimPrefix(p.url.Path, "/")
	if db == "" {
		db = "0"
	}
	if n, err := strconv.Atoi(db); err != nil || n < 0 {
		return usage("what follows the host of the redis URL is not the number of a database; write %s, and percent-encode special characters of a password", p.scheme.form)
	}
	p.url.Host, p.url.Path = net.JoinHostPort(host, port), db
	p.text = p.scheme.name + " " + p.url.Host
	if db != "0" {
		p.text += "/" + db
	}
	return nil
}

func openRedis(ctx context.Context, p *place) (*store, error) {
	rdb := redisClient(p)
	if err := pingRedis(ctx, p, rdb); err != nil {
		_ = rdb.Close()
		return nil, err
	}
	b := redislock.New(rdb, nil)
	return &store{b, func() { _ = b.Close(); _ = rdb.Close() }}, nil
}

// redisMember opens a server as one of a quorum.
func redisMember(p *place) (*member, error) {
	rdb := redisClient(p)
	return &member{
		backend: redislock.New(rdb, &redislock.Options{Member: &driver.Membership{}}),
		ask:     func(ctx context.Context) error { return pingRedis(ctx, p, rdb) },
		close:   func() { _ = rdb.Close() },
	}, nil
}

func redisClient(p *place) *redis.Client {
	db, _ := strconv.Atoi(p.url.Path)
	o := &redis.Options{
		Addr:     p.url.Host,
		DB:       db,
		Username: p.secret.user,
		Password: p.secret.password,

		ContextTimeoutEnabled: true,
		DisableIdentity:       true,
	}
	if p.scheme.name == "rediss" {
		o.TLSConfig = &tls.Config{ServerName: p.url.Hostname(), MinVersion: tls.VersionTLS12}
	}
	redis.SetLogger(noLog{})
	return redis.NewClient(o)
}

// pingRedis asks once whether the server is there and lets us in.
func pingRedis(ctx context.Context, p *place, rdb *redis.Client) error {
	err := rdb.Ping(ctx).Err()
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case unauthorised(err):
		return deniedError{given: p.secret.password != ""}
	}
	return err
}

// unauthorised recognises Redis's ways to say that it does not let us in.
func unauthorised(err error) bool {
	for _, prefix := range []string{"NOAUTH", "WRONGPASS", "NOPERM", "ERR AUTH", "ERR invalid password", "ERR Client sent AUTH"} {
		if strings.HasPrefix(err.Error(), prefix) {
			return true
		}
	}
	return false
}

// noLog keeps the client library's own messages off the terminal: what matters
// comes back as an error.
type noLog struct{}

func (noLog) Printf(context.Context, string, ...any) {}
