package redislock

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strings"

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

// rights tries each command that locks need, and finds which of them the server refuses. Each master of a Cluster has a
// list of rights of its own, and looks at it before it redirects. It costs two round trips and a connection.
func (s *serverExamination) rights(ctx context.Context, server redis.UniversalClient) error {
	channel := s.b.channel + "doctor"
	calls := s.b.rightsTried(s.b.prefix+"doctor:"+rand.Text(), channel)
	cmds := make([]*redis.Cmd, len(calls))
	_, _ = server.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, args := range calls {
			cmds[i] = p.Do(ctx, args...)
		}
		return nil
	})
	sub := server.Subscribe(ctx, channel)
	_, err := sub.Receive(ctx)
	_ = sub.Close()
	missing, err := s.b.missingRight(nil, "subscribe", err)
	for i := 0; i < len(calls) && err == nil; i++ {
		missing, err = s.b.missingRight(missing, calls[i][0].(string), cmds[i].Err())
	}
	if err != nil || missing == nil {
		return err
	}
	rights, everywhere := strings.Join(missing, " "), ""
	if s.addr != "" {
		everywhere = " on every node"
	}
	s.add(health.Error, "redis-rights", "ACL of "+s.b.user(), "without "+rights, "Locks need these rights.",
		"ACL SETUSER "+s.b.user()+" "+rights+everywhere)
	return nil
}

// missingRight adds the right that err, the response to a command, says is missing. Other errors of the server are
// ignored, and those of the connection returned.
func (b *Backend) missingRight(missing []string, command string, err error) ([]string, error) {
	var refused redis.Error
	if err == nil || errors.As(err, &refused) && !strings.HasPrefix(err.Error(), "NOPERM") {
		return missing, nil
	}
	if refused == nil {
		return missing, err
	}
	right := "+" + command
	switch text := err.Error(); {
	case strings.Contains(text, "access a channel"), strings.Contains(text, "the channels"):
		right = "&" + b.prefix + "*"
	case strings.Contains(text, "access a key"), strings.Contains(text, "the keys"):
		right = "~" + b.prefix + "*"
	}
	if slices.Contains(missing, right) {
		return missing, nil
	}
	return append(missing, right), nil
}
