package lab

import (
	"time"

	"github.com/fencelock/fencelock/internal/history"
)

// redissonLock and redissonUnlock are the scripts of Redisson's RLock, without its messages.
const (
	redissonLock = `
if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
  redis.call('hincrby', KEYS[1], ARGV[2], 1)
  redis.call('pexpire', KEYS[1], ARGV[1])
  return nil
end
return redis.call('pttl', KEYS[1])`

	redissonUnlock = `
if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then
  return nil
end
if redis.call('hincrby', KEYS[1], ARGV[1], -1) > 0 then
  return 0
end
return redis.call('del', KEYS[1])`
)

// leaseTime is the argument of lock(10, SECONDS). Only lock() starts the watchdog.
const leaseTime = 10 * time.Second

func lockForLeaseTime(c *client) bool {
	return c.eval(redissonLock, []any{"lock"}, leaseTime.Milliseconds(), c.name+":1") == nil
}

var leaseTimeWithoutWatchdog = Experiment{
	Breaks: []history.Rule{history.Exclusion},
	scheme: func(s *stage) {
		a, b, _ := s.clients()
		a.step("calls lock(10, SECONDS); the work takes 15s", "调用 lock(10, SECONDS)；活儿要干 15 秒",
			a.locks(lockForLeaseTime))
		s.passes(leaseTime, "10s pass, and no watchdog renews", "过了 10 秒，没有看门狗续期")
		b.step("takes the lock: A and B are both inside", "拿到锁：A、B 同时在里面", b.locks(lockForLeaseTime))
		a.step("has finished; unlock throws IllegalMonitorStateException", "干完了；unlock 抛出 IllegalMonitorStateException",
			a.unlocks(func(c *client) { c.eval(redissonUnlock, []any{"lock"}, c.name+":1") }))
	},
	ours: func(s *stage) {
		a, b, _ := s.users()
		a.ttl = watchedLease
		a.step("takes the lock with a TTL of 3s; the work takes longer", "以 3 秒的 TTL 拿到锁；活儿更长",
			func() { a.locksAs("Lock(TTL(3s))") })
		s.step("more than 3s pass", "过了 3 秒多", a.outlives)
		b.step("A was renewed, and holds it", "A 已续期，仍然持有", b.refused)
		passesOn(a, b)
	},
}
