package lab

import (
	"context"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/internal/history"
	"github.com/redis/go-redis/v9"
)

// fixedLock compares and deletes in one script. Nobody renews it.
type fixedLock struct {
	rdb   *redis.Client
	value string // random in real life
	ttl   time.Duration
}

const compareAndDelete = `
if redis.call('get', KEYS[1]) == ARGV[1] then
  return redis.call('del', KEYS[1])
end
return 0`

func (l *fixedLock) Lock(ctx context.Context) (bool, error) {
	return l.rdb.SetNX(ctx, "lock", l.value, l.ttl).Result()
}

func (l *fixedLock) Unlock(ctx context.Context) error {
	return l.rdb.Eval(ctx, compareAndDelete, []string{"lock"}, l.value).Err()
}

var noWatchdog = Experiment{
	Number: 6,
	Breaks: []history.Rule{history.Exclusion},
	scheme: func(s *stage) {
		n := s.redis("")
		a, b := &fixedLock{s.client(n), "A", lease}, &fixedLock{s.client(n), "B", lease}
		s.at("A", "takes the lock for 30s; the work takes 40s", "拿到锁 30 秒；活儿要干 40 秒")
		s.locks("A", func() (bool, error) { return a.Lock(s.ctx) })
		s.at("", "30s pass", "过了 30 秒")
		s.pass(lease)
		s.at("B", "takes the lock: A and B are both inside", "拿到锁：A、B 同时在里面")
		s.locks("B", func() (bool, error) { return b.Lock(s.ctx) })
		s.at("", "10s pass", "又过了 10 秒")
		s.pass(10 * time.Second)
		s.at("A", "has finished; its release finds B's value, and keeps off", "干完了；释放时看到的是 B 的值，没有误删")
		s.unlocks("A", func() error { return a.Unlock(s.ctx) })
	},
	ours: func(s *stage) {
		n := s.redis("")
		a, b := s.user(n, "A"), s.user(n, "B")
		s.at("A", "takes the lock for 1s; the work takes longer", "拿到锁 1 秒；活儿更长")
		a.lock(fencelock.TTL(watchedLease))
		s.at("", "more than 1s passes", "过了 1 秒多")
		a.outlives()
		s.at("B", "A was renewed, and holds it", "A 已续租，仍然持有")
		b.try(false)
		s.at("A", "has finished", "干完了")
		a.release()
		s.at("B", "now it is free", "现在空闲了")
		b.try(true)
	},
}

// watchedLease is one that must be renewed in time while the machine is busy.
const watchedLease = time.Second

// outlives waits until the lease would have ended, had nobody renewed it.
func (u *user) outlives() {
	select {
	case <-time.After(watchedLease + watchedLease/10):
	case <-u.s.ctx.Done():
	}
	u.s.check(u.lease.Err())
}
