package lab

import (
	"errors"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/internal/history"
)

const setnxExpire = `
if redis.call('setnx', KEYS[1], 1) == 1 then
  redis.call('expire', KEYS[1], ARGV[1])
  return 1
end
return 0`

// lockWithoutOwner takes the lock and sets its end in one script. It does not write down
// whose it is.
func lockWithoutOwner(c *client) bool {
	return c.eval(setnxExpire, []any{"lock"}, seconds) == int64(1)
}

// lockWithOwner takes the lock with one command, and writes down whose it is. The name is
// random in real life.
func lockWithOwner(c *client) bool { return c.setNX(c.name) }

// unlockPlainly deletes the lock, whosever it is.
func unlockPlainly(c *client) { c.do("DEL", "lock") }

// unlockAfterLook looks whether the lock is its own before it deletes it.
func unlockAfterLook(c *client) {
	if c.text("GET", "lock") == c.name {
		c.between()
		c.do("DEL", "lock")
	}
}

const compareAndDelete = `
if redis.call('get', KEYS[1]) == ARGV[1] then
  return redis.call('del', KEYS[1])
end
return 0`

// unlockOwn compares and deletes in one script.
func unlockOwn(c *client) { c.eval(compareAndDelete, []any{"lock"}, c.name) }

var luaWithoutOwner = Experiment{
	Breaks: []history.Rule{history.Exclusion}, scheme: lateUnlock(lockWithoutOwner), ours: lateRelease,
}

var plainDelete = Experiment{
	Breaks: []history.Rule{history.Exclusion}, scheme: lateUnlock(lockWithOwner), ours: lateRelease,
}

// lateUnlock is the schedule for locks that anybody can delete.
func lateUnlock(lock func(*client) bool) func(*stage) {
	return func(s *stage) {
		a, b, c := s.clients()
		a.step("takes the lock for 30s", "拿到锁，30 秒", a.locks(lock))
		s.passes(lease, "30s pass, and A has not finished", "过了 30 秒，A 还没干完")
		b.step("takes the lock: A and B are both inside", "拿到锁：A、B 同时在里面", b.locks(lock))
		a.step("has finished, and deletes what is B's", "干完了，删掉的却是 B 的锁", a.unlocks(unlockPlainly))
		c.step("takes the lock: B and C are both inside", "拿到锁：B、C 同时在里面", c.locks(lock))
	}
}

// lateRelease is the same schedule against fencelock. Its leases are renewed, so that
// one ends only if nothing gets through.
func lateRelease(s *stage) {
	a, b, c := s.users()
	a.ttl = shortLease
	a.step("takes the lock; then its network is cut", "拿到锁，然后网络断了", a.locks, a.isCutOff)
	a.step("is told at its deadline, and stops", "到截止时间，得到通知，停手", a.isTold, s.empties)
	b.step("takes the lock, after A was told", "拿到锁，在 A 得到通知之后", b.locks)
	a.step("its network is back; it is late, and touches nothing", "网络恢复；迟到了，什么都不碰", a.wire.Resume, func() {
		err := a.lease.Release(a.ctx)
		a.want(errors.Is(err, fencelock.ErrLost), "Release of a lost lease answered %v", err)
		a.record("Release → ErrLost")
	})
	c.step("B still holds it", "B 还持有着", c.refused)
	passesOn(b, c)
}

var getThenDelete = Experiment{
	Breaks: []history.Rule{history.Exclusion},
	scheme: func(s *stage) {
		a, b, c := s.clients()
		a.between = func() {
			s.passes(lease, "in this moment the 30s are over", "就在这时 30 秒到了")
			b.step("takes the lock", "拿到锁", b.locks(lockWithOwner))
			a.step("deletes what is B's now", "删掉的已经是 B 的锁")
		}
		a.step("takes the lock for 30s", "拿到锁，30 秒", a.locks(lockWithOwner))
		a.step("has finished in time, and looks: it is mine", "按时干完，先查看：是我的", a.unlocks(unlockAfterLook))
		c.step("takes the lock: B and C are both inside", "拿到锁：B、C 同时在里面", c.locks(lockWithOwner))
	},
	ours: slowRelease,
}

// slowRelease is the schedule of a release that arrives when the lease has ended.
func slowRelease(s *stage) {
	a, b, c := s.users()
	a.ttl = shortLease
	a.step("takes the lock", "拿到锁", a.locks)
	a.step("has finished; its release is on its way for long", "干完了，释放请求在路上耽搁很久", a.isCutOff, a.releasesSlowly,
		s.empties)
	b.step("the lease of A has ended: takes the lock", "A 的租约已结束：拿到锁", b.locks)
	a.step("now its release arrives, and finds nothing of its own", "释放请求这时才到，发现自己的锁请求没了",
		a.wire.Resume, a.arrives)
	c.step("B still holds it", "B 还持有着", c.refused)
	passesOn(b, c)
}

// releasesSlowly releases while nothing gets through: the request stays on its way.
func (u *user) releasesSlowly() {
	u.event(history.Release)
	err := u.lease.Release(u.ctx)
	u.want(errors.Is(err, fencelock.ErrUnavailable), "a release that cannot get through answered %v", err)
	u.record("Release → ErrUnavailable")
}

// arrives waits until the release that was on its way is answered.
func (u *user) arrives() {
	select {
	case err := <-u.left:
		u.want(err != nil, "a release that came late was answered as if it had been in time")
		u.event(history.Left)
		u.record("(Release) → gone")
	case <-u.ctx.Done():
		u.check(u.ctx.Err())
	}
}

var noWatchdog = Experiment{
	Breaks: []history.Rule{history.Exclusion},
	scheme: func(s *stage) {
		a, b, _ := s.clients()
		a.step("takes the lock for 30s; the work takes 40s", "拿到锁 30 秒；活儿要干 40 秒", a.locks(lockWithOwner))
		s.passes(lease, "30s pass", "过了 30 秒")
		b.step("takes the lock: A and B are both inside", "拿到锁：A、B 同时在里面", b.locks(lockWithOwner))
		s.passes(10*time.Second, "10s pass", "又过了 10 秒")
		a.step("has finished; its release finds B's value, and keeps off", "干完了；释放时看到的是 B 的值，没有误删",
			a.unlocks(unlockOwn))
	},
	ours: func(s *stage) {
		a, b, _ := s.users()
		a.ttl = watchedLease
		a.step("takes the lock for 3s; the work takes longer", "拿到锁 3 秒；活儿更长", a.locks)
		s.step("more than 3s pass", "过了 3 秒多", a.outlives)
		b.step("A was renewed, and holds it", "A 已续期，仍然持有", b.refused)
		a.step("has finished", "干完了", a.releases)
		b.step("now it is free", "现在空闲了", b.tries)
	},
}
