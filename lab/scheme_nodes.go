package lab

import (
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/ballot"
	"github.com/fencelock/fencelock/internal/faultproxy"
	"github.com/fencelock/fencelock/internal/history"
	"github.com/fencelock/fencelock/quorumlock"
	"github.com/fencelock/fencelock/redislock"
)

// lockWithToken draws a token beside the lock, on one master.
func lockWithToken(c *client) int64 {
	if !c.setNX(c.name) {
		return 0
	}
	return c.do("INCR", "token").(int64)
}

var oneMaster = Experiment{
	Breaks:   []history.Rule{history.Exclusion, history.Tokens},
	overlaps: true,
	scheme: func(s *stage) {
		master, replica := s.pair()
		s.check(master.rdb.Set(s.ctx, "token", 33, 0).Err())
		s.check(master.rdb.Wait(s.ctx, 1, 10*time.Second).Err())
		a, b := s.client(master, "A"), s.client(replica, "B")
		s.cutLink(replica)
		a.step("takes the lock on the master", "在主库上拿到锁", a.locksWithToken(lockWithToken, 34))
		s.failover(master, replica)
		b.step("takes the lock again, with the same token", "又拿到一次，token 相同", b.locksWithToken(lockWithToken, 34))
	},
	ours: func(s *stage) {
		master, replica := s.pair()
		s.cutLink(replica)
		a := s.user(master, "A")
		a.ttl = watchedLease
		a.step("takes the lock on the master, and writes", "在主库上拿到锁，写入", a.locks, a.writes)
		s.failover(master, replica)
		b := s.user(replica, "B")
		b.step("takes the lock again, with a larger token, and writes", "又拿到一次，token 更大，写入", b.locks, b.writes)
		a.step("does not know yet: its write is refused", "还不知道：写入被拒绝", a.writesLate)
		a.step("is told at its deadline", "到截止时间，得到通知", a.isTold)
	},
}

// pair starts a master and a replica that has heard of everything so far.
func (s *stage) pair() (master, replica *node) {
	master = s.redis("master", "repl-diskless-sync-delay 0")
	host, port, _ := strings.Cut(master.server.Addr(), ":")
	replica = s.redis("replica", "replicaof "+host+" "+port)
	s.until("the replica has joined", func() bool {
		return strings.Contains(replica.rdb.Info(s.ctx, "replication").Val(), "master_link_status:up")
	})
	return master, replica
}

// cutLink leaves the replica with what it has.
func (s *stage) cutLink(replica *node) {
	s.step("the link to the replica is cut", "主从之间的链路断了", func() {
		s.check(replica.rdb.Do(s.ctx, "replicaof", "127.0.0.1", "1").Err()) // nobody listens there
	})
}

// failover ends the master and promotes the replica.
func (s *stage) failover(master, replica *node) {
	s.step("the master dies, and the replica is promoted", "主库宕机，从库被提升", func() {
		s.check(master.server.Kill())
		s.check(replica.rdb.Do(s.ctx, "replicaof", "no", "one").Err())
	})
}

// redlock is a client that takes the lock on a majority of independent nodes. It has no token.
type redlock struct {
	*client
	nodes []*client // it, at each node
}

// redlock is a client of all nodes. It may not reach the last one.
func (s *stage) redlock(name string, reachesAll bool) redlock {
	l := redlock{client: s.client(s.nodes[0], name)}
	for i, n := range s.nodes {
		c := s.client(n, name)
		c.cutOff = !reachesAll && i == len(s.nodes)-1
		l.nodes = append(l.nodes, c)
	}
	return l
}

func (l redlock) lock(*client) bool {
	granted := 0
	for _, c := range l.nodes {
		if c.setNX(l.name) {
			granted++
		}
	}
	if granted > len(l.nodes)/2 {
		return true
	}
	l.unlock(nil)
	return false
}

func (l redlock) unlock(*client) {
	for _, c := range l.nodes {
		unlockOwn(c) // a node that is down forgets by itself
	}
}

var redlockWithoutToken = Experiment{
	Breaks:   []history.Rule{history.Exclusion},
	overlaps: true,
	scheme: func(s *stage) {
		second := s.threeNodes()
		a, b := s.redlock("A", false), s.redlock("B", true)
		a.step("takes the lock on 1 and 2, a majority", "在 1、2 上拿到锁，多数派", a.locks(a.lock))
		s.step("the clock of 2 jumps 30s forward", "2 的时钟往前跳了 30 秒", func() { second.pass(s, lease) })
		b.step("takes the lock on 2 and 3: another majority", "在 2、3 上拿到锁：另一个多数派", b.locks(b.lock))
		a.step("gives it back", "释放", a.unlocks(a.unlock))
		b.step("gives it back", "释放", b.unlocks(b.unlock))
		a.step("takes the lock on 1 and 2 again", "又在 1、2 上拿到锁", a.locks(a.lock))
		s.step("2 restarts with empty memory", "2 空着内存重启", second.restart(s))
		b.step("takes the lock on 2 and 3: another majority", "在 2、3 上拿到锁：另一个多数派", b.locks(b.lock))
	},
	ours: func(s *stage) {
		second := s.threeNodes()
		for _, n := range s.nodes { // they are new, and have forgotten nothing
			s.check(redislock.New(n.rdb, &redislock.Options{Member: &ballot.Membership{}}).Initialise(s.ctx))
		}
		a, b := s.member("A", false), s.member("B", true)
		a.step("takes the lock on 1 and 2, a majority, and writes", "在 1、2 上拿到锁，多数派，写入", a.tries, a.writes)
		s.step("the clock of 2 jumps 30s forward", "2 的时钟往前跳了 30 秒", func() { s.endEarly(second) })
		b.step("takes the lock on 2 and 3, with a larger token, and writes", "在 2、3 上拿到锁，token 更大，写入",
			b.tries, b.writes)
		a.step("its write is refused", "写入被拒绝", a.writesLate)
		a.step("gives it back", "释放", a.releases)
		b.step("gives it back", "释放", b.releases)

		s.turnTo("again")
		a.step("takes another lock on 1 and 2", "在 1、2 上拿到另一把锁", a.tries)
		s.step("2 restarts with empty memory", "2 空着内存重启", second.restart(s))
		b.step("1 is taken, 2 takes no part yet: no majority", "1 被占，2 暂不参与：凑不成多数派", b.refused)
		a.step("gives it back", "释放", a.releases, func() {
			s.until("every node is free", func() bool { // a refused quorum leaves its nodes behind its caller
				return !slices.ContainsFunc(s.nodes, func(n *node) bool { return len(s.lines(n)) > 0 })
			})
		})
		b.step("1 and 3 are a majority", "1、3 是多数派", b.tries)
	},
}

func (s *stage) threeNodes() (second *node) {
	s.redis("1")
	second = s.redis("2")
	s.redis("3")
	return second
}

// member connects a process to a quorum of all nodes. It may not reach the last one.
func (s *stage) member(name string, reachesAll bool) *user {
	var members []driver.Backend
	var rdb *redis.Client
	var wire *faultproxy.Proxy
	for _, n := range s.nodes {
		rdb, wire = s.dial(n)
		members = append(members, redislock.New(rdb, &redislock.Options{Member: &ballot.Membership{}}))
	}
	if !reachesAll {
		wire.Refuse()
	}
	u := s.userOn(quorumlock.New(members, &quorumlock.Options{Names: []string{"1", "2", "3"}}), wire, name, name)
	u.ttl = 4 * lease // its first renewal, which joins the nodes that it lacks, comes after the play
	s.holds = func() []Text { return s.each(s.lines) }
	return u
}

// endEarly ends the lease of the holder on one node: a claim says when it ends, and there is no
// PEXPIRE for it.
func (s *stage) endEarly(n *node) {
	lock := "fencelock:{" + s.key() + "}"
	claims, err := n.rdb.HGetAll(s.ctx, lock).Result()
	s.check(err)
	for field, claim := range claims {
		if _, rest, _ := strings.Cut(claim, " "); strings.HasPrefix(field, "c:") {
			s.check(n.rdb.HSet(s.ctx, lock, field, "1 "+rest, "soonest", 1).Err())
		}
	}
	s.until("the lease has ended on the node", func() bool { return len(s.lines(n)) == 0 })
}
