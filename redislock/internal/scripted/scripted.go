// Package scripted takes locks that another library keeps in one key of Redis, by a script for each step.
package scripted

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
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
	return l.run(ctx, l.format.Try, key, id, milliseconds(ttl))
}

// Renew starts the lease of a lock that id holds again.
func (l *Lock) Renew(ctx context.Context, key, id string, ttl time.Duration) (bool, error) {
	return l.run(ctx, l.format.Renew, key, id, milliseconds(ttl))
}

// Release frees a lock that id holds.
func (l *Lock) Release(ctx context.Context, key, id string) (bool, error) {
	return l.run(ctx, l.format.Release, key, id)
}

func (l *Lock) run(ctx context.Context, s *redis.Script, key, id string, lease ...any) (bool, error) {
	args := append([]any{l.format.Holder(id)}, lease...)
	n, err := s.Run(ctx, l.rdb, l.format.Keys(l.prefix+key), args...).Int()
	return n == 1, err
}

// milliseconds rounds up: a lease never ends before its holder believes.
func milliseconds(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}
