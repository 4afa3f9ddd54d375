package lab

import (
	"context"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/internal/history"
	"github.com/redis/go-redis/v9"
)

// ownerlessLock takes the lock and sets its end in one script. It does not write down
// whose it is.
type ownerlessLock struct {
	rdb *redis.Client
	ttl time.Duration
}

const setnxExpire = `
if redis.call('setnx', KEYS[1], 1) == 1 then
  redis.call('expire', KEYS[1], ARGV[1])
  return 1
end
return 0`

func (l *ownerlessLock) Lock(ctx context.Context) (bool, error) {
	return l.rdb.Eval(ctx, setnxExpire, []string{"lock"}, int(l.ttl.Seconds())).Bool()
}

func (l *ownerlessLock) Unlock(ctx context.Context) error { return l.rdb.Del(ctx, "lock").Err() }

var luaWithoutOwner = Experiment{
	Number: 3,
	Breaks: []history.Rule{history.Exclusion},
	scheme: func(s *stage) {
		n := s.redis("")
		a := &ownerlessLock{s.client(n), lease}
		b := &ownerlessLock{s.client(n), lease}
		c := &ownerlessLock{s.client(n), lease}
		lateUnlock(s, a.Lock, a.Unlock, b.Lock, c.Lock)
	},
	ours: lateRelease,
}

// lateUnlock is the schedule for locks that anybody can delete.
func lateUnlock(s *stage, lockA func(context.Context) (bool, error), unlockA func(context.Context) error,
	lockB, lockC func(context.Context) (bool, error)) {
	s.at("A", "takes the lock for 30s", "拿到锁，30 秒")
	s.locks("A", func() (bool, error) { return lockA(s.ctx) })
	s.at("", "30s pass, and A has not finished", "过了 30 秒，A 还没干完")
	s.pass(lease)
	s.at("B", "takes the lock: A and B are both inside", "拿到锁：A、B 同时在里面")
	s.locks("B", func() (bool, error) { return lockB(s.ctx) })
	s.at("A", "has finished, and deletes what is B's", "干完了，删掉的却是 B 的锁")
	s.unlocks("A", func() error { return unlockA(s.ctx) })
	s.at("C", "takes the lock: B and C are both inside", "拿到锁：B、C 同时在里面")
	s.locks("C", func() (bool, error) { return lockC(s.ctx) })
}

// lateRelease is the same schedule against fencelock. Its leases are renewed, so that
// one ends only if nothing gets through.
func lateRelease(s *stage) {
	n := s.redis("")
	a, b, c := s.user(n, "A"), s.user(n, "B"), s.user(n, "C")
	s.at("A", "takes the lock; then its network is cut", "拿到锁，然后网络断了")
	a.lock(fencelock.TTL(shortLease))
	a.wire.sever()
	s.at("A", "is told at its deadline, and stops", "到期限时得到通知，停手")
	a.lost()
	s.until("the lease of A has ended in the store", func() bool { return len(s.look()) == 0 })
	s.at("B", "takes the lock, after A was told", "拿到锁，在 A 得到通知之后")
	b.lock()
	s.at("A", "its network is back; it is late, and touches nothing", "网络恢复；迟到了，什么都不碰")
	a.wire.mend()
	a.releaseLost()
	s.at("C", "B still holds it", "B 还持有着")
	c.try(false)
	s.at("B", "gives it back", "释放")
	b.release()
	s.at("C", "now it is free", "现在空闲了")
	c.try(true)
}
