package lab

import (
	"fmt"
	"time"

	"github.com/fencelock/fencelock/internal/history"
)

// sessions is any service that grants leases: ZooKeeper, etcd, Consul. This one lives
// in memory, and keeps every rule that a lease can keep.
type sessions struct {
	holder string
	ends   time.Duration
}

func (l *sessions) lock(c *client) bool {
	if l.holder != "" && c.now() < l.ends {
		return false
	}
	l.holder, l.ends = c.name, c.now()+lease
	c.record(fmt.Sprintf("Lock(%s) → true", c.name))
	return true
}

var pausedHolder = Experiment{
	Breaks: []history.Rule{history.Fence},
	scheme: func(s *stage) {
		l := &sessions{}
		s.holds = func() []Text { return []Text{same("holder = " + l.holder)} }
		a, b := s.client(nil, "A"), s.client(nil, "B")
		a.step("takes the lock for 30s", "拿到锁，30 秒", a.locks(l.lock))
		a.step("is about to write, and is stopped", "正要写入，进程停住了", a.stops)
		s.passes(lease, "30s pass", "过了 30 秒")
		b.step("takes the lock, and writes", "拿到锁，写入", b.locks(l.lock), b.writes)
		a.step("goes on where it was: its write overwrites B's", "醒来接着干：它的写入盖掉了 B 的", a.goesOn, a.writes)
	},
	ours: func(s *stage) {
		a, b, _ := s.users()
		a.ttl = shortLease
		a.step("takes the lock", "拿到锁", a.locks)
		a.step("is about to write, and is stopped", "正要写入，进程停住了", a.isCutOff, a.stops)
		b.step("takes the lock when the lease has ended, and writes", "租约到期后拿到锁，写入", b.locks, b.writes)
		a.step("goes on where it was: its write is refused", "醒来接着干：写入被拒绝", a.goesOn, a.wire.Resume, a.writesLate)
		a.step("looks, and knows that the lock is lost", "一看，就知道锁丢了", a.looks)
	},
}

const setAndDraw = `
if not redis.call('set', KEYS[1], ARGV[1], 'NX', 'EX', ARGV[2]) then
  return 0
end
local token = redis.call('incr', KEYS[2])
return token`

// lockInLua takes the lock and draws its token in one script. The token is 0 if the lock is
// taken.
func lockInLua(c *client) int64 {
	return c.eval(setAndDraw, []any{"lock", "token"}, c.name, seconds).(int64)
}

var tokenAsLuaNumber = Experiment{
	Breaks: []history.Rule{history.Tokens},
	scheme: func(s *stage) {
		a, b, _ := s.clients()
		s.check(a.node.rdb.Set(s.ctx, "token", int64(1<<53-1), 0).Err())
		a.step("takes the lock", "拿到锁", a.locksWithToken(lockInLua, 1<<53))
		a.step("gives it back", "释放", a.unlocks(unlockOwn))
		b.step("takes the lock, and has the same token", "拿到锁，token 相同", b.locksWithToken(lockInLua, 1<<53))
	},
	ours: func(s *stage) {
		a, b, _ := s.users()
		s.remember(1<<53 - 4)
		a.step("takes the lock", "拿到锁", a.locks)
		s.want(a.lease.Token() == 1<<53-3, "A has the token %v", a.lease)
		a.step("gives it back", "释放", a.releases)
		b.step("takes the lock, and has the next token", "拿到锁，token 是下一个", b.locks)
		s.want(b.lease.Token() == 1<<53-2, "B has the token %v", b.lease)
	},
}

// remember makes the line remember a token, as if it had drawn that many: the clock
// will take two hundred years to get there.
func (s *stage) remember(last int64) {
	s.check(s.nodes[0].rdb.HSet(s.ctx, "fencelock:{lock}", "format", 2, "last", last).Err())
}
