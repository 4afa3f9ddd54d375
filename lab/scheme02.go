package lab

import (
	"context"
	"time"

	"github.com/fencelock/fencelock/internal/history"
	"github.com/redis/go-redis/v9"
)

// clientTimeLock writes into the lock when it ends, by the clock of the client. Who
// finds that time in the past exchanges it for one of its own, and has the lock if
// nobody was faster.
type clientTimeLock struct {
	rdb   *redis.Client
	clock func() time.Time
	ttl   time.Duration

	between func() // where the schedule steps in
}

func (l *clientTimeLock) Lock(ctx context.Context) (bool, error) {
	mine := l.clock().Add(l.ttl).Format(time.TimeOnly)
	if ok, err := l.rdb.Do(ctx, "SETNX", "lock", mine).Bool(); err != nil || ok {
		return ok, err
	}
	ends, err := l.rdb.Get(ctx, "lock").Result()
	if err != nil || ends > l.clock().Format(time.TimeOnly) {
		return false, err
	}
	if l.between != nil {
		l.between()
	}
	before, err := l.rdb.Do(ctx, "GETSET", "lock", mine).Text()
	return before == ends, err
}

// atNoon is a clock that shows that much past twelve.
func atNoon(past time.Duration) func() time.Time {
	return func() time.Time { return time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC).Add(past) }
}

var getSetWithClientTime = Experiment{
	Number: 2,
	Breaks: []history.Rule{history.Exclusion},
	scheme: func(s *stage) {
		n := s.redis("")
		a := &clientTimeLock{rdb: s.client(n), clock: atNoon(0), ttl: lease}
		b := &clientTimeLock{rdb: s.client(n), clock: atNoon(time.Minute), ttl: lease}
		c := &clientTimeLock{rdb: s.client(n), clock: atNoon(61 * time.Second), ttl: lease}

		s.at("A", "at 12:00:00 takes the lock until 12:00:30", "12:00:00 拿到锁，到 12:00:30")
		s.locks("A", func() (bool, error) { return a.Lock(s.ctx) })
		s.at("C", "its clock is a minute fast: the lock looks expired", "时钟快一分钟，看起来锁已过期")
		c.between = func() {
			s.at("B", "its clock is fast as well, and it is faster", "时钟也快，而且抢先一步")
			s.locks("B", func() (bool, error) { return b.Lock(s.ctx) })
			s.at("C", "comes too late, but B's end is overwritten", "晚了一步，但 B 的过期时间被改掉了")
		}
		s.refused("C", func() (bool, error) { return c.Lock(s.ctx) })
	},
	ours: func(s *stage) {
		n := s.redis("")
		a, b, c := s.user(n, "A"), s.user(n, "B"), s.user(n, "C")
		s.at("A", "takes the lock for 30s, by the clock of Redis", "拿到锁 30 秒，以 Redis 的时钟为准")
		a.lock()
		s.at("C", "whatever its clock shows, the lock is held", "不管它的时钟怎样，锁都有人持有")
		c.try(false)
		s.at("B", "the same", "同样")
		b.try(false)
		s.at("A", "gives it back", "释放")
		a.release()
		s.at("B", "now it is free", "现在空闲了")
		b.try(true)
	},
}
