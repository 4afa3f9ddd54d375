package main

import (
	"context"
	"crypto/tls"
	"net"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

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
	rdb := redis.NewClient(o)
	if err := rdb.Ping(ctx).Err(); err != nil {
		_ = rdb.Close()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if unauthorised(err) {
			return nil, deniedError{given: p.secret.password != ""}
		}
		return nil, err
	}
	b := redislock.New(rdb, nil)
	return &store{b, func() { _ = b.Close(); _ = rdb.Close() }}, nil
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
