package lab

import (
	"context"
	"time"

	"github.com/fencelock/fencelock/internal/history"
	"github.com/redis/go-redis/v9"
)

// plainLock takes the lock with one command and deletes it with another.
type plainLock struct {
	rdb   *redis.Client
	owner string
	ttl   time.Duration
}

func (l *plainLock) Lock(ctx context.Context) (bool, error) {
	return l.rdb.SetNX(ctx, "lock", l.owner, l.ttl).Result()
}

func (l *plainLock) Unlock(ctx context.Context) error { return l.rdb.Del(ctx, "lock").Err() }

var plainDelete = Experiment{
	Number: 4,
	Breaks: []history.Rule{history.Exclusion},
	scheme: func(s *stage) {
		n := s.redis("")
		a := &plainLock{s.client(n), "A", lease}
		b := &plainLock{s.client(n), "B", lease}
		c := &plainLock{s.client(n), "C", lease}
		lateUnlock(s, a.Lock, a.Unlock, b.Lock, c.Lock)
	},
	ours: lateRelease,
}
