package redislock

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/fencelock/fencelock/driver/health"
	"github.com/redis/go-redis/v9"
)

// rightsTried returns a call of each command that locks need, on a key that no lock has. What
// the calls leave, the last of them delete.
func (b *Backend) rightsTried(key, channel string) [][]any {
	calls := [][]any{
		{"eval", "return 1", 1, key}, {"evalsha", strings.Repeat("0", 40), 1, key},
		{"time"}, {"get", key}, {"set", key, "", "xx"}, {"pttl", key}, {"exists", key}, {"persist", key},
		{"hget", key, "f"}, {"hmget", key, "f"}, {"hgetall", key},
		{"zadd", key, "xx", 1, "m"}, {"zrem", key, "m"}, {"zrank", key, "m"}, {"zcard", key}, {"zrange", key, 0, 1},
		{"publish", channel, ""}, {"ping"}, {"scan", 0, "count", 1},
		{"hset", key, "f", ""}, {"hdel", key, "f"}, {"pexpireat", key, 1},
	}
	if b.transport.replicas > 0 {
		calls = append(calls, []any{"wait", 0, 1})
	}
	if b.member != nil {
		calls = append(calls, []any{"info"})
	}
	return calls
}

// missingRights tries each command that locks need, and returns what the server refuses, or
// nil. Each master of a Cluster has a list of rights of its own. It costs two round trips and a
// connection for each.
func (b *Backend) missingRights(ctx context.Context) (*health.Finding, error) {
	var mu sync.Mutex
	var missing []string
	err := b.eachServer(ctx, func(ctx context.Context, _ string, node redis.UniversalClient) error {
		mu.Lock()
		defer mu.Unlock()
		return b.tryRights(ctx, node, &missing)
	})
	if err != nil || missing == nil {
		return nil, err
	}
	rights, everywhere := strings.Join(missing, " "), ""
	if b.transport.cluster != nil {
		everywhere = " on every node"
	}
	return &health.Finding{
		Severity: health.Error, Code: "redis-rights", Setting: "ACL of " + b.user(), Value: "without " + rights,
		Why:    "Locks need these rights.",
		Remedy: "ACL SETUSER " + b.user() + " " + rights + everywhere,
	}, nil
}

// tryRights adds what a server refuses. A node of a Cluster looks at the rights before it redirects.
func (b *Backend) tryRights(ctx context.Context, server redis.UniversalClient, missing *[]string) error {
	channel := b.channel + "doctor"
	calls := b.rightsTried(b.prefix+"doctor:"+rand.Text(), channel)
	cmds := make([]*redis.Cmd, len(calls))
	_, _ = server.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, args := range calls {
			cmds[i] = p.Do(ctx, args...)
		}
		return nil
	})
	for i, args := range calls {
		if err := b.addMissing(missing, args[0].(string), cmds[i].Err()); err != nil {
			return err
		}
	}
	sub := server.Subscribe(ctx, channel)
	_, err := sub.Receive(ctx)
	_ = sub.Close()
	return b.addMissing(missing, "subscribe", err)
}

// addMissing adds the right that err, the answer to a command, says is missing. Other answers
// of the server are no matter here, and errors that are none are returned.
func (b *Backend) addMissing(missing *[]string, command string, err error) error {
	var answer redis.Error
	if err == nil || errors.As(err, &answer) && !strings.HasPrefix(err.Error(), "NOPERM") {
		return nil
	}
	if answer == nil {
		return err
	}
	right := "+" + command
	switch text := err.Error(); {
	case strings.Contains(text, "access a channel"), strings.Contains(text, "the channels"):
		right = "&" + b.prefix + "*"
	case strings.Contains(text, "access a key"), strings.Contains(text, "the keys"):
		right = "~" + b.prefix + "*"
	}
	if !slices.Contains(*missing, right) {
		*missing = append(*missing, right)
	}
	return nil
}
