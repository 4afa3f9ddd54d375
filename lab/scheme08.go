package lab

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/history"
	"github.com/fencelock/fencelock/quorumlock"
	"github.com/fencelock/fencelock/redislock"
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
	dial := func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("timeout") }
	rdb := redis.NewClient(&redis.Options{Addr: "unreachable", MaxRetries: -1, DialerRetries: 1, Dialer: dial})
	rdb.AddHook(recorder{s, n.name})
	s.closers = append(s.closers, rdb.Close)
	return rdb
}

var redlockWithoutToken = Experiment{
	Number: 8,
	Breaks: []history.Rule{history.Exclusion},
	excuse: func(v history.Violation) bool { return v.Rule == history.Exclusion && v.Key == "lock" },
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
		nodes[1].pass(s, lease)
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
		s.check(nodes[1].server.Restart())
		s.check(nodes[1].rdb.Ping(s.ctx).Err())
		b = lock("B", -1)
		s.at("B", "takes the lock on 2 and 3: another majority", "在 2、3 上拿到锁：另一个多数派")
		s.locks("B", func() (bool, error) { return b.Lock(s.ctx) })
	},
	ours: func(s *stage) {
		nodes := []*node{s.redis("1"), s.redis("2"), s.redis("3")}
		s.initialise(nodes)
		a, b := s.member(nodes, "A", 2), s.member(nodes, "B", -1)
		g := guard{s: s}
		s.at("A", "takes the lock on 1 and 2, a majority, and writes", "在 1、2 上拿到锁，多数派，写入")
		a.try(true)
		g.write(a, true)
		s.at("", "the clock of 2 jumps 30s forward", "2 的时钟往前跳了 30 秒")
		s.endsEarly(nodes[1])
		s.at("B", "takes the lock on 2 and 3, with a larger token, and writes", "在 2、3 上拿到锁，token 更大，写入")
		b.try(true)
		g.write(b, true)
		s.at("A", "its write is refused", "写入被拒绝")
		g.write(a, false)
		s.at("A", "gives it back", "释放")
		a.release()
		s.at("B", "gives it back", "释放")
		b.release()

		s.turnTo("again")
		s.at("A", "takes another lock on 1 and 2", "在 1、2 上拿到另一把锁")
		a.try(true)
		s.at("", "2 restarts with empty memory", "2 空着内存重启")
		s.check(nodes[1].server.Restart())
		s.check(nodes[1].rdb.Ping(s.ctx).Err())
		s.at("B", "1 is taken, 2 takes no part yet: no majority", "1 被占，2 暂不参与：凑不成多数派")
		b.try(false)
		s.at("A", "gives it back", "释放")
		a.release()
		s.until("every node is free", func() bool { // a refused quorum leaves its nodes behind its caller
			return !slices.ContainsFunc(nodes, func(n *node) bool {
				return len(s.lines(redislock.New(n.rdb, nil))) > 0
			})
		})
		s.at("B", "1 and 3 are a majority", "1、3 是多数派")
		b.try(true)
	},
}

// initialise says that the nodes are new and have forgotten nothing.
func (s *stage) initialise(nodes []*node) {
	for _, n := range nodes {
		s.check(redislock.New(n.rdb, &redislock.Options{Member: &driver.Membership{}}).Initialise(s.ctx))
	}
}

// member connects a process to a quorum of nodes, one of which it may not reach.
func (s *stage) member(nodes []*node, name string, unreachable int) *user {
	var cut atomic.Bool
	var members []driver.Backend
	for i, n := range nodes {
		o := *n.rdb.Options()
		o.DialerRetries = 1
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if i == unreachable && cut.Load() {
				return nil, errors.New("timeout")
			}
			return new(net.Dialer).DialContext(ctx, network, addr)
		}
		rdb := redis.NewClient(&o)
		s.closers = append(s.closers, rdb.Close)
		members = append(members, redislock.New(rdb, &redislock.Options{Member: &driver.Membership{}}))
	}
	cut.Store(true)
	u := s.userOn(quorumlock.New(members, &quorumlock.Options{Names: []string{"1", "2", "3"}}), name)
	s.closers = append(s.closers, func() error { cut.Store(false); return nil }) // before the user is closed
	s.holds = func() []Text {
		var all []Text
		for i, m := range members {
			all = append(all, s.nodeHolds(nodes[i].name, m.(driver.LineReader))...)
		}
		return all
	}
	return u
}

// nodeHolds shows the lines of one member.
func (s *stage) nodeHolds(name string, b driver.LineReader) []Text {
	all := s.lines(b)
	if len(all) == 0 {
		all = []Text{same("–")}
	}
	for i := range all {
		all[i] = Text{name + ": " + all[i].EN, name + ": " + all[i].ZH}
	}
	return all
}

// endsEarly ends the lease of the holder on one node: the record says how long it
// lasts, and there is no PEXPIRE for it.
func (s *stage) endsEarly(n *node) {
	record := "fencelock:{" + s.key + "}"
	const microsecond = "00000000.000001" // in the place of the length of the lease
	s.check(n.rdb.SetRange(s.ctx, record, 109, microsecond).Err())
	s.until("the lease has ended on the node", func() bool { return len(s.lines(redislock.New(n.rdb, nil))) == 0 })
}
