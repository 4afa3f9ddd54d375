package lab

import (
	"time"

	"github.com/fencelock/fencelock/internal/history"
)

// lockInTwoSteps takes the lock in one request and gives it an end in another.
func lockInTwoSteps(c *client) bool {
	return c.ok("SETNX", "lock", c.name) && c.ok("EXPIRE", "lock", seconds)
}

var setnxThenExpire = Experiment{
	Breaks: []history.Rule{history.Stuck},
	scheme: func(s *stage) {
		a, b, _ := s.clients()
		a.step("takes the lock, and is killed before EXPIRE", "拿到锁，还没执行 EXPIRE 就被杀死", func() {
			a.event(history.Enter)
			a.do("SETNX", "lock", a.name) // the first of its two steps
		}, a.dies)
		b.step("wants the lock", "想要这把锁", b.waits(lockInTwoSteps))
		s.passes(time.Hour, "an hour passes", "过了一小时")
		b.step("still waits, and will forever", "还在等，会一直等下去", b.answers(lockInTwoSteps, false))
	},
	ours: func(s *stage) {
		a, b, _ := s.users()
		a.ttl = shortLease
		a.step("takes the lock, and is killed at once", "拿到锁，立刻被杀死", a.locks, a.isCutOff, a.dies)
		b.step("waits until the lease of A has ended, no longer", "只等到 A 的租约结束", b.locks)
	},
}

// lockByOwnTime writes into the lock when it ends, by the clock of the client, which is that
// much past noon. Who finds that time in the past exchanges it for one of its own, and has
// the lock if nobody was faster.
func lockByOwnTime(past time.Duration) func(*client) bool {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC).Add(past)
	mine := now.Add(lease).Format(time.TimeOnly)
	return func(c *client) bool {
		if c.ok("SETNX", "lock", mine) {
			return true
		}
		ends := c.text("GET", "lock")
		if ends > now.Format(time.TimeOnly) {
			return false
		}
		c.between()
		return c.text("GETSET", "lock", mine) == ends
	}
}

var getSetWithClientTime = Experiment{
	Breaks: []history.Rule{history.Exclusion},
	scheme: func(s *stage) {
		a, b, c := s.clients()
		c.between = func() {
			b.step("its clock is fast as well, and it is faster", "时钟也快，而且抢先一步", b.locks(lockByOwnTime(time.Minute)))
			c.step("comes too late, but B's end is overwritten", "晚了一步，但 B 的过期时间被改掉了")
		}
		a.step("at 12:00:00 takes the lock until 12:00:30", "12:00:00 拿到锁，到 12:00:30", a.locks(lockByOwnTime(0)))
		c.step("its clock is a minute fast: the lock looks expired", "时钟快一分钟，看起来锁已过期",
			c.refused(lockByOwnTime(time.Minute+time.Second)))
	},
	ours: func(s *stage) {
		a, b, c := s.users()
		a.step("takes the lock for 30s, by the clock of Redis", "拿到锁 30 秒，以 Redis 的时钟为准", a.locks)
		c.step("whatever its clock shows, the lock is held", "不管它的时钟怎样，锁都有人持有", c.refused)
		b.step("the same", "同样", b.refused)
		passesOn(a, b)
	},
}

// passesOn is how many schedules end: one gives the lock back, and another gets it.
func passesOn(from, to *user) {
	from.step("gives it back", "释放", from.releases)
	to.step("now it is free", "现在空闲了", to.tries)
}
