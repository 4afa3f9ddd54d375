package lab

import (
	"context"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/internal/history"
	"github.com/redis/go-redis/v9"
)

// twoStepLock takes the lock in one request and gives it an end in another.
type twoStepLock struct {
	rdb   *redis.Client
	owner string
	ttl   time.Duration

	between func() error // where the schedule steps in
}

func (l *twoStepLock) Lock(ctx context.Context) (bool, error) {
	ok, err := l.rdb.Do(ctx, "SETNX", "lock", l.owner).Bool()
	if err != nil || !ok {
		return false, err
	}
	if l.between != nil {
		if err := l.between(); err != nil {
			return false, err
		}
	}
	return true, l.rdb.Expire(ctx, "lock", l.ttl).Err()
}

var setnxThenExpire = Experiment{
	Number: 1,
	Breaks: []history.Rule{history.Stuck},
	scheme: func(s *stage) {
		n := s.redis("")
		a := &twoStepLock{rdb: s.client(n), owner: "A", ttl: lease, between: func() error { return errKilled }}
		b := &twoStepLock{rdb: s.client(n), owner: "B", ttl: lease}

		s.at("A", "takes the lock, and is killed before EXPIRE", "拿到锁，还没执行 EXPIRE 就被杀死")
		s.event(history.Enter, "A")
		_, err := a.Lock(s.ctx)
		s.want(err == errKilled, "A was to be killed: %v", err)
		s.kills("A")
		s.at("B", "wants the lock", "想要这把锁")
		s.waits("B", func() (bool, error) { return b.Lock(s.ctx) })
		s.at("", "an hour passes", "过了一小时")
		s.pass(time.Hour)
		s.at("B", "still waits, and will for ever", "还在等，会一直等下去")
		s.answers("B", func() (bool, error) { return b.Lock(s.ctx) }, false)
	},
	ours: func(s *stage) {
		n := s.redis("")
		a, b := s.user(n, "A"), s.user(n, "B")
		s.at("A", "takes the lock, and is killed at once", "拿到锁，立刻被杀死")
		a.lock(fencelock.TTL(shortLease))
		a.wire.sever()
		s.kills("A")
		s.at("B", "waits until the lease of A has ended, no longer", "只等到 A 的租约结束")
		b.lock()
	},
}
