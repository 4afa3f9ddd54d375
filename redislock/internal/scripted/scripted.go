// Package scripted takes locks that another library keeps in one key of Redis, by a script for each step.
package scripted

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencelock/fencelock/redislock/internal/reply"
)

// Format is how a library keeps a lock. Each script returns 1 if the step was done. KEYS are those of the lock, ARGV
// its holder and, but for Release, the lease in milliseconds.
type Format struct {
	Name                string
	Try, Renew, Release *redis.Script
	Keys                func(name string) []string
	Holder              func(id string) string
}

// Lock takes locks of one Format in one Redis. Its methods may be called from many goroutines at once. Each is one
// request.
type Lock struct {
	format *Format
	rdb    redis.UniversalClient
	prefix string
}

// New returns a Lock on rdb, which stays the caller's. The name of a lock is its key behind prefix.
func New(f *Format, rdb redis.UniversalClient, prefix string) Lock { return Lock{f, rdb, prefix} }

// Name returns the name of the format.
func (l *Lock) Name() string { return l.format.Name }

// Close does nothing.
func (l *Lock) Close() error { return nil }

// Try takes the lock of key for ttl, or starts its lease again if id holds it.
func (l *Lock) Try(ctx context.Context, key, id string, ttl time.Duration) (bool, error) {
	return l.run(ctx, "take", l.format.Try, key, id, milliseconds(ttl))
}

// Renew starts the lease of a lock that id holds again.
func (l *Lock) Renew(ctx context.Context, key, id string, ttl time.Duration) (bool, error) {
	return l.run(ctx, "renew", l.format.Renew, key, id, milliseconds(ttl))
}

// Release frees a lock that id holds.
func (l *Lock) Release(ctx context.Context, key, id string) (bool, error) {
	return l.run(ctx, "release", l.format.Release, key, id)
}

func (l *Lock) run(ctx context.Context, doing string, s *redis.Script, key, id string, lease ...any) (bool, error) {
	args := append([]any{l.format.Holder(id)}, lease...)
	n, err := s.Run(ctx, sender{l.rdb}, l.format.Keys(l.prefix+key), args...).Int()
	if err != nil {
		_, cluster := l.rdb.(*redis.ClusterClient)
		return false, reply.Explain(fmt.Sprintf("%s: %s %q", l.format.Name, doing, key), !cluster, err)
	}
	return n == 1, nil
}

// sender sends each script once. go-redis would repeat it and not say so, and the refusal of a second copy says
// nothing of the first.
type sender struct{ redis.UniversalClient }

func (s sender) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	return s.send(ctx, "evalsha", sha, keys, args)
}

func (s sender) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	return s.send(ctx, "eval", script, keys, args)
}

func (s sender) send(ctx context.Context, verb, script string, keys []string, args []any) *redis.Cmd {
	all := []any{verb, script, len(keys)}
	for _, k := range keys {
		all = append(all, k)
	}
	c := &once{*redis.NewCmd(ctx, append(all, args...)...)}
	_ = s.Process(ctx, c)
	return &c.Cmd
}

type once struct{ redis.Cmd }

func (*once) NoRetry() bool { return true }

// milliseconds rounds up: a lease never ends before its holder believes.
func milliseconds(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}
