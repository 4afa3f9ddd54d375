package lab

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/internal/history"
	"github.com/redis/go-redis/v9"
)

// redlock takes the lock on a majority of independent nodes. It has no token.
type redlock struct {
	nodes []*redis.Client
	value string // random in real life
	ttl   time.Duration
}

func (l *redlock) Lock(ctx context.Context) (bool, error) {
	granted := 0
	for _, rdb := range l.nodes {
		if ok, err := rdb.SetNX(ctx, "lock", l.value, l.ttl).Result(); err == nil && ok {
			granted++
		}
	}
	if granted > len(l.nodes)/2 {
		return true, nil
	}
	return false, l.Unlock(ctx)
}

func (l *redlock) Unlock(ctx context.Context) error {
	for _, rdb := range l.nodes {
		rdb.Eval(ctx, compareAndDelete, []string{"lock"}, l.value) // a node that is down forgets by itself
	}
	return nil
}

// cutOff connects an actor to a node that it cannot reach.
func (s *stage) cutOff(n *node) *redis.Client {
	rdb := redis.NewClient(&redis.Options{Addr: "unreachable", MaxRetries: -1, DialerRetries: 1, Dialer: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("timeout")
	}})
	rdb.AddHook(listener{s, n.name})
	s.closers = append(s.closers, func() { _ = rdb.Close() })
	return rdb
}

var redlockWithoutToken = Experiment{
	Number: 8,
	Title:  Text{"Redlock without a token", "Redlock，没有 token"},
	Taught: Text{"the algorithm and its many ports", "Redlock 算法及其各种移植"},
	Flaw: Text{
		"A majority excludes only while no node forgets. A clock that jumps forward ends the lock on one node too early, a restart with empty memory at once; the next one finds a majority of its own. And nothing tells the two apart: there is no token.",
		"多数派能互斥，前提是没有节点会忘。时钟往前跳，那个节点上的锁提前过期；空着内存重启，锁当场消失；后来者又凑成一个多数派。而且没有 token，资源端分不清两者。",
	},
	Cure: Text{
		"Every grant carries a token from the server's clock, which rises even after an empty restart. The resource refuses the old one, and the next renewal tells the holder that its claim is gone.",
		"每次加锁都带着取自服务器时钟的 token，空重启之后也递增。资源端拒绝旧的；下一次续租就告诉持有者锁没了。",
	},
	Note: Text{
		"Compared is fencelock on one Redis that restarts empty. It cannot keep I1 through that either: the comparison judges tokens and writes, not overlap.",
		"这里对比的是单个 Redis 空重启时的 fencelock。它同样保不住 I1：比的是 token 和写入，不比重叠。",
	},
	Breaks: []history.Rule{history.Exclusion},
	Judged: history.Without(history.Exclusion),
	scheme: func(s *stage) {
		nodes := []*node{s.redis("1"), s.redis("2"), s.redis("3")}
		lock := func(value string, unreachable int) *redlock {
			l := &redlock{value: value, ttl: lease}
			for i, n := range nodes {
				if i == unreachable {
					l.nodes = append(l.nodes, s.cutOff(n))
				} else {
					l.nodes = append(l.nodes, s.client(n))
				}
			}
			return l
		}
		a, b := lock("A", 2), lock("B", -1)
		s.at("A", "takes the lock on 1 and 2, a majority", "在 1、2 上拿到锁，多数派")
		s.locks("A", func() (bool, error) { return a.Lock(s.ctx) })
		s.at("", "the clock of 2 jumps 30s forward", "2 的时钟往前跳了 30 秒")
		if s.err == nil {
			nodes[1].pass(s, lease)
		}
		s.at("B", "takes the lock on 2 and 3: another majority", "在 2、3 上拿到锁：另一个多数派")
		s.locks("B", func() (bool, error) { return b.Lock(s.ctx) })
		s.at("A", "gives it back", "释放")
		s.unlocks("A", func() error { return a.Unlock(s.ctx) })
		s.at("B", "gives it back", "释放")
		s.unlocks("B", func() error { return b.Unlock(s.ctx) })

		a = lock("A", 2)
		s.at("A", "takes the lock on 1 and 2 again", "又在 1、2 上拿到锁")
		s.locks("A", func() (bool, error) { return a.Lock(s.ctx) })
		s.at("", "2 restarts with empty memory", "2 空着内存重启")
		if s.err == nil {
			s.check(nodes[1].server.Restart())
			s.check(nodes[1].rdb.Ping(s.ctx).Err())
		}
		b = lock("B", -1)
		s.at("B", "takes the lock on 2 and 3: another majority", "在 2、3 上拿到锁：另一个多数派")
		s.locks("B", func() (bool, error) { return b.Lock(s.ctx) })
	},
	ours: func(s *stage) {
		n := s.redis("")
		g := guard{s: s}
		a := s.user(n, "A")
		s.at("A", "takes the lock, and writes", "拿到锁，写入")
		a.lock(fencelock.TTL(watchedLease))
		g.write(a, true)
		s.at("", "Redis restarts with empty memory", "Redis 空着内存重启")
		a.wire.sever()
		if s.err == nil {
			s.check(n.server.Restart())
			s.check(n.rdb.Ping(s.ctx).Err())
		}
		b := s.user(n, "B")
		s.at("B", "takes the lock, with a larger token, and writes", "拿到锁，token 更大，写入")
		b.lock()
		g.write(b, true)
		s.at("A", "does not know yet: its write is refused", "还不知道：写入被拒绝")
		g.write(a, false)
		s.at("A", "its next renewal tells it, or its deadline", "下一次续租时得知，最迟到期限")
		a.wire.mend()
		a.over()
	},
}

// over waits until the holder is told that its lease has ended, whyever.
func (u *user) over() {
	if u.s.err != nil {
		return
	}
	select {
	case <-u.lease.Context().Done():
	case <-u.s.ctx.Done():
		u.s.check(u.s.ctx.Err())
		return
	}
	u.s.event(history.Loss, u.name)
	cause := context.Cause(u.lease.Context())
	u.s.want(errors.Is(cause, fencelock.ErrLost), "%s was told %v", u.name, cause)
	u.s.told("Context() → ErrLost")
}
