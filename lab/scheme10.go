package lab

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/fencelock/fencelock/internal/history"
	"github.com/redis/go-redis/v9"
)

// luaTokenLock takes the lock and draws its token in one script.
type luaTokenLock struct {
	rdb   *redis.Client
	value string
	ttl   time.Duration
}

const setAndDraw = `
if not redis.call('set', KEYS[1], ARGV[1], 'NX', 'EX', ARGV[2]) then
  return 0
end
local token = redis.call('incr', KEYS[2])
return token`

// Lock returns the token, or 0 if the lock is taken.
func (l *luaTokenLock) Lock(ctx context.Context) (int64, error) {
	return l.rdb.Eval(ctx, setAndDraw, []string{"lock", "token"}, l.value, int(l.ttl.Seconds())).Int64()
}

func (l *luaTokenLock) Unlock(ctx context.Context) error {
	return l.rdb.Eval(ctx, compareAndDelete, []string{"lock"}, l.value).Err()
}

var tokenAsLuaNumber = Experiment{
	Number: 10,
	Breaks: []history.Rule{history.Tokens},
	scheme: func(s *stage) {
		n := s.redis("")
		s.check(n.rdb.Set(s.ctx, "token", int64(1<<53-1), 0).Err())
		a, b := &luaTokenLock{s.client(n), "A", lease}, &luaTokenLock{s.client(n), "B", lease}
		s.at("A", "takes the lock", "拿到锁")
		s.locksWithToken("A", a.Lock, 1<<53)
		s.at("A", "gives it back", "释放")
		s.unlocks("A", func() error { return a.Unlock(s.ctx) })
		s.at("B", "takes the lock, and has the same token", "拿到锁，token 相同")
		s.locksWithToken("B", b.Lock, 1<<53)
	},
	ours: func(s *stage) {
		n := s.redis("")
		a, b := s.user(n, "A"), s.user(n, "B")
		s.remember(n, 1<<53-1)
		s.at("A", "takes the lock", "拿到锁")
		a.lock()
		s.want(a.lease.Token() == 1<<53, "A has the token %v", a.lease)
		s.at("A", "gives it back", "释放")
		a.release()
		s.at("B", "takes the lock, and has the next token", "拿到锁，token 是下一个")
		b.lock()
		s.want(b.lease.Token() == 1<<53+1, "B has the token %v", b.lease)
	},
}

// remember makes the line remember a token, as if it had drawn that many: the clock
// will take two hundred years to get there.
func (s *stage) remember(n *node, last int64) {
	now := time.Now().UnixMicro()
	record := fmt.Sprintf("1 idle %s 000 0000 %019d %016d %016d 00000 ", strings.Repeat("-", 32), last, now, now)
	s.check(n.rdb.Set(s.ctx, "fencelock:{lock}", record, time.Hour).Err())
}
