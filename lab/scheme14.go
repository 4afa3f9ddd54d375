package lab

import (
	"context"
	"errors"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/internal/history"
	"github.com/redis/go-redis/v9"
)

// queueLock serves clients in order. Each takes its own name out of the queue when
// it has the lock, or gives up.
type queueLock struct {
	rdb   *redis.Client
	owner string
	ttl   time.Duration
}

func (l *queueLock) Join(ctx context.Context) error {
	return l.rdb.RPush(ctx, "queue", l.owner).Err()
}

// Try takes the lock if it is this client's turn.
func (l *queueLock) Try(ctx context.Context) (bool, error) {
	head, err := l.rdb.LIndex(ctx, "queue", 0).Result()
	if err != nil || head != l.owner {
		return false, err
	}
	ok, err := l.rdb.SetNX(ctx, "lock", l.owner, l.ttl).Result()
	if err != nil || !ok {
		return false, err
	}
	return true, l.rdb.LPop(ctx, "queue").Err()
}

func (l *queueLock) Unlock(ctx context.Context) error {
	return l.rdb.Eval(ctx, compareAndDelete, []string{"lock"}, l.owner).Err()
}

var headOfTheQueue = Experiment{
	Number: 14,
	Breaks: []history.Rule{history.Stuck},
	scheme: func(s *stage) {
		n := s.redis("")
		a := &queueLock{s.client(n), "A", lease}
		b := &queueLock{s.client(n), "B", lease}
		c := &queueLock{s.client(n), "C", lease}
		s.at("A", "joins, is first, and takes the lock", "排队，排第一，拿到锁")
		s.locks("A", func() (bool, error) { return joinAndTry(s.ctx, a) })
		s.at("B", "joins and waits", "排队等待")
		s.waits("B", func() (bool, error) { return joinAndTry(s.ctx, b) })
		s.at("C", "joins behind B", "排在 B 后面")
		s.waits("C", func() (bool, error) { return joinAndTry(s.ctx, c) })
		s.at("B", "is killed while it waits", "等待时被杀死")
		s.kills("B")
		s.at("A", "gives it back", "释放")
		s.unlocks("A", func() error { return a.Unlock(s.ctx) })
		s.at("C", "it is B's turn", "轮到的是 B")
		s.answers("C", func() (bool, error) { return c.Try(s.ctx) }, false)
		s.at("", "an hour passes", "过了一小时")
		s.pass(time.Hour)
		s.at("C", "it is still B's turn", "轮到的还是 B")
		s.answers("C", func() (bool, error) { return c.Try(s.ctx) }, false)
	},
	ours: func(s *stage) {
		n := s.redis("")
		a, b, c := s.user(n, "A"), s.user(n, "B"), s.user(n, "C")
		s.at("A", "takes the lock", "拿到锁")
		a.lock()
		s.at("B", "waits in line", "排队等待")
		b.wait(fencelock.TTL(shortLease))
		s.inLine(n, 2)
		s.at("C", "waits behind B", "排在 B 后面")
		c.wait()
		s.inLine(n, 3)
		s.at("B", "is killed while it waits", "等待时被杀死")
		b.wire.sever()
		b.giveUp()
		s.kills("B")
		s.at("A", "gives it back", "释放")
		a.release()
		s.at("C", "gets it when the lease of B has ended", "B 的租约一结束就拿到")
		c.gets()
	},
}

func joinAndTry(ctx context.Context, l *queueLock) (bool, error) {
	if err := l.Join(ctx); err != nil {
		return false, err
	}
	ok, err := l.Try(ctx)
	if errors.Is(err, redis.Nil) {
		err = nil
	}
	return ok, err
}
