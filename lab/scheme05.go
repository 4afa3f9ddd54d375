package lab

import (
	"context"
	"errors"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/internal/history"
	"github.com/redis/go-redis/v9"
)

// compareLock looks whether the lock is its own before it deletes it.
type compareLock struct {
	rdb   *redis.Client
	value string // random in real life
	ttl   time.Duration

	between func() // where the schedule steps in
}

func (l *compareLock) Lock(ctx context.Context) (bool, error) {
	return l.rdb.SetNX(ctx, "lock", l.value, l.ttl).Result()
}

func (l *compareLock) Unlock(ctx context.Context) error {
	value, err := l.rdb.Get(ctx, "lock").Result()
	if err != nil || value != l.value {
		return err
	}
	if l.between != nil {
		l.between()
	}
	return l.rdb.Del(ctx, "lock").Err()
}

var getThenDelete = Experiment{
	Number: 5,
	Breaks: []history.Rule{history.Exclusion},
	scheme: func(s *stage) {
		n := s.redis("")
		a := &compareLock{rdb: s.client(n), value: "A", ttl: lease}
		b := &compareLock{rdb: s.client(n), value: "B", ttl: lease}
		c := &compareLock{rdb: s.client(n), value: "C", ttl: lease}
		s.at("A", "takes the lock for 30s", "拿到锁，30 秒")
		s.locks("A", func() (bool, error) { return a.Lock(s.ctx) })
		s.at("A", "has finished in time, and looks: it is mine", "按时干完，先查看：是我的")
		a.between = func() {
			s.at("", "in this moment the 30s are over", "就在这时 30 秒到了")
			s.pass(lease)
			s.at("B", "takes the lock", "拿到锁")
			s.locks("B", func() (bool, error) { return b.Lock(s.ctx) })
			s.at("A", "deletes what is B's now", "删掉的已经是 B 的锁")
		}
		s.unlocks("A", func() error { return a.Unlock(s.ctx) })
		s.at("C", "takes the lock: B and C are both inside", "拿到锁：B、C 同时在里面")
		s.locks("C", func() (bool, error) { return c.Lock(s.ctx) })
	},
	ours: func(s *stage) {
		n := s.redis("")
		a, b, c := s.user(n, "A"), s.user(n, "B"), s.user(n, "C")
		s.at("A", "takes the lock", "拿到锁")
		a.lock(fencelock.TTL(shortLease))
		s.at("A", "has finished; its release is on its way for long", "干完了，释放请求在路上耽搁很久")
		a.wire.sever()
		a.releaseSlowly()
		s.at("B", "the lease of A has ended: takes the lock", "A 的租约已结束：拿到锁")
		b.lock()
		s.at("A", "now its release arrives, and finds nothing of its own", "释放请求这时才到，发现自己的占位没了")
		a.wire.mend()
		a.arrives()
		s.at("C", "B still holds it", "B 还持有着")
		c.try(false)
		s.at("B", "gives it back", "释放")
		b.release()
		s.at("C", "now it is free", "现在空闲了")
		c.try(true)
	},
}

// releaseSlowly releases while nothing gets through: the request stays on its way.
func (u *user) releaseSlowly() {
	u.s.event(history.Release, u.name)
	err := u.lease.Release(u.s.ctx)
	u.s.want(errors.Is(err, fencelock.ErrUnavailable), "a release that cannot get through answered %v", err)
	u.s.record("Release → ErrUnavailable")
}

// arrives waits until the release that was on its way is answered.
func (u *user) arrives() {
	select {
	case err := <-u.wire.left:
		u.s.want(err != nil, "a release that came late was answered as if it had been in time")
		u.s.event(history.Left, u.name)
		u.s.record("(Release) → gone")
	case <-u.s.ctx.Done():
		u.s.check(u.s.ctx.Err())
	}
}
