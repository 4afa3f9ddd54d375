package lab

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/fencelock/fencelock/internal/history"
	"github.com/redis/go-redis/v9"
)

// pubSubLock sleeps until a message says that the lock is free.
type pubSubLock struct {
	rdb   *redis.Client
	value string
	ttl   time.Duration

	between func() // where the schedule steps in
}

func (l *pubSubLock) Lock(ctx context.Context) (bool, error) {
	ok, err := l.rdb.SetNX(ctx, "lock", l.value, l.ttl).Result()
	if err != nil || ok {
		return ok, err
	}
	if l.between != nil {
		l.between()
	}
	freed := l.rdb.Subscribe(ctx, "freed")
	defer freed.Close()
	if _, err := freed.ReceiveMessage(ctx); err != nil {
		return false, err
	}
	return l.Lock(ctx)
}

func (l *pubSubLock) Unlock(ctx context.Context) error {
	if err := l.rdb.Eval(ctx, compareAndDelete, []string{"lock"}, l.value).Err(); err != nil {
		return err
	}
	return l.rdb.Publish(ctx, "freed", "lock").Err()
}

var pubSubOnly = Experiment{
	Number: 13,
	Breaks: []history.Rule{history.WakeUp},
	scheme: func(s *stage) {
		n := s.redis("")
		a := &pubSubLock{rdb: s.client(n), value: "A", ttl: lease}
		b := &pubSubLock{rdb: s.client(n), value: "B", ttl: lease}
		s.at("A", "takes the lock", "拿到锁")
		s.locks("A", func() (bool, error) { return a.Lock(s.ctx) })
		s.at("B", "the lock is taken: is about to subscribe", "锁被占了：正要订阅")
		b.between = func() {
			s.at("A", "gives it back, and tells nobody: nobody listens yet", "释放并发消息：还没有人在听")
			s.unlocks("A", func() error { return a.Unlock(s.ctx) })
			s.at("B", "subscribes, and waits for a message", "订阅，等消息")
			s.record("SUBSCRIBE freed")
		}
		s.waits("B", func() (bool, error) {
			ctx, cancel := context.WithTimeout(s.ctx, 100*time.Millisecond)
			defer cancel()
			ok, err := b.Lock(ctx)
			if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) {
				err = s.ctx.Err() // it would wait longer; the schedule does not
			}
			return ok, err
		})
		s.at("", "an hour passes: the lock is free, and B sleeps", "过了一小时：锁空着，B 还在睡")
		s.pass(time.Hour)
	},
	ours: func(s *stage) {
		n := s.redis("")
		a, b := s.user(n, "A"), s.user(n, "B")
		s.at("A", "takes the lock", "拿到锁")
		a.lock()
		s.at("B", "waits in line", "排队等待")
		b.wait()
		s.inLine(n, 2)
		s.at("A", "gives it back, and the message to B is lost", "释放，发给 B 的消息丢了")
		b.subscriptions.mute()
		a.release()
		s.at("B", "reads the line by itself: the lock is its own", "自己重读队列：轮到它了")
		b.gets()
	},
}
