package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/quorumlock"
	"github.com/fencelock/fencelock/redislock"
)

// checkRedlock reads redlock://host:port,host:port,host:port/db. Every process names all
// of the servers: a majority is counted of those.
func checkRedlock(p *place) error {
	if err := checkRedisHosts(p, "6379"); err != nil {
		return err
	}
	hosts := strings.Split(p.url.Host, ",")
	if n := len(hosts); n < 3 || n > 9 || n%2 == 0 {
		return usage("a quorum has 3, 5, 7 or 9 independent servers, and the redlock URL names %d; write %s", n, p.scheme.form)
	}
	seen := map[string]bool{}
	for _, h := range hosts {
		if seen[h] {
			return usage("the redlock URL names one server twice: a majority of names would not be a majority of servers")
		}
		seen[h] = true
	}
	db := strings.Trim(p.url.Path, "/")
	if db == "" {
		db = "0"
	}
	if n, err := strconv.Atoi(db); err != nil || n < 0 {
		return usage("what follows the hosts of the redlock URL is not the number of a database; write %s, and percent-encode special characters of a password", p.scheme.form)
	}
	p.url.Path = db
	p.text = p.scheme.name + " " + p.url.Host
	if db != "0" {
		p.text += "/" + db
	}
	return nil
}

// openRedlock wants a majority of the servers to answer.
func openRedlock(ctx context.Context, p *place) (*store, error) {
	redis.SetLogger(noLog{})
	hosts := strings.Split(p.url.Host, ",")
	db, _ := strconv.Atoi(p.url.Path)
	var clients []*redis.Client
	var members []driver.Backend
	for _, h := range hosts {
		rdb := redis.NewClient(&redis.Options{
			Addr:     h,
			DB:       db,
			Username: p.secret.user,
			Password: p.secret.password,

			ContextTimeoutEnabled: true,
			DisableIdentity:       true,
		})
		clients = append(clients, rdb)
		members = append(members, redislock.New(rdb, &redislock.Options{Member: &driver.Membership{}}))
	}
	b := quorumlock.New(members, &quorumlock.Options{Names: hosts})
	end := func() {
		_ = b.Close()
		for _, rdb := range clients {
			_ = rdb.Close()
		}
	}
	if err := majority(ctx, p, clients); err != nil {
		end()
		return nil, err
	}
	return &store{b, end}, nil
}

// majority asks all servers at once and returns when a majority has answered.
func majority(ctx context.Context, p *place, clients []*redis.Client) error {
	answers := make(chan error, len(clients))
	for _, rdb := range clients {
		go func() { answers <- rdb.Ping(ctx).Err() }()
	}
	up, need := 0, len(clients)/2+1
	var last error
	for range clients {
		err := <-answers
		var refused redis.Error
		switch {
		case err == nil:
			if up++; up == need {
				return nil
			}
		case errors.As(err, &refused) && unauthorised(refused):
			return deniedError{given: p.secret.password != ""}
		default:
			last = err
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("%d of %d servers answer, and %d are needed: %w", up, len(clients), need, last)
}
