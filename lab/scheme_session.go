package lab

import (
	"fmt"

	"github.com/fencelock/fencelock/internal/history"
)

// ephemeral is a node of ZooKeeper that ends with the session of its owner. It lives in memory,
// and one client at most watches it.
type ephemeral struct {
	*stage
	owner string
	event chan string // of the watch
}

func (n *ephemeral) create(c *client) bool {
	answer := "ok"
	if n.owner != "" {
		answer = "node exists"
	} else {
		n.owner = c.name
	}
	c.record("Create /lock, ephemeral → " + answer)
	return answer == "ok"
}

// lockOrWatch takes the lock, or watches the node.
func (n *ephemeral) lockOrWatch(c *client) bool {
	if n.create(c) {
		return true
	}
	n.event = make(chan string, 1)
	c.record("ExistsW /lock → event")
	return false
}

func (n *ephemeral) hears(c *client) { c.record("<-event → " + <-n.event) }

func (n *ephemeral) look() []Text {
	if n.owner == "" {
		return nil
	}
	return []Text{{"/lock, session of " + n.owner, "/lock，属于 " + n.owner + " 的会话"}}
}

// onAnyEvent takes any event for the end of the node, and looks no further.
func onAnyEvent(n *ephemeral, c *client) bool {
	n.hears(c)
	n.create(c)
	return true
}

// worksOn is a holder that does not listen to its session.
func worksOn(*client) {}

var bareNode = Experiment{
	Breaks: []history.Rule{history.Exclusion},
	scheme: sessionsEnd(worksOn, onAnyEvent),
	ours: func(s *stage) {
		a, b, c := s.users()
		a.ttl, c.ttl = shortLease, shortLease
		a.step("takes the lock; then its network is cut", "拿到锁，然后网络断了", a.locks, a.isCutOff)
		a.step("is told at its deadline, and stops", "到截止时间，得到通知，停手", a.isTold, s.empties)
		b.step("takes the lock, after A was told, and writes", "拿到锁，在 A 得到通知之后，写入", b.locks, b.writes)
		a.step("its network is back: its late write is refused", "网络恢复：迟到的写入被拒绝", a.wire.Resume, a.writesLate)
		c.step("waits in line", "排队等待", c.waits)
		c.step("its network is cut until its place is gone", "网络断了，直到排队的位置过期", c.isCutOff, func() {
			s.until("the claim of C has ended", func() bool { return len(s.look()) == 1 })
		})
		c.step("its network is back: waits in line again", "网络恢复：重新排队", c.wire.Resume, func() {
			s.until("C is in line again", func() bool { return len(s.look()) == 2 })
			s.want(len(c.waiting) == 0, "C does not wait any more")
		})
		b.step("gives it back", "释放", b.releases)
		c.step("gets it", "拿到锁", c.gets)
	},
}

// sessionsEnd is the schedule of two sessions that end: that of a holder, and that of a waiter.
func sessionsEnd(disconnected func(*client), woken func(*ephemeral, *client) bool) func(*stage) {
	return func(s *stage) {
		n := &ephemeral{stage: s}
		s.holds = n.look
		a, b, c := s.client(nil, "A"), s.client(nil, "B"), s.client(nil, "C")
		a.step("creates the node: has the lock", "建节点：拿到锁", a.locks(n.lockOrWatch))
		a.step("its network is cut; its work goes on", "网络断了，活儿还在干", func() {
			a.record("session → Disconnected")
			disconnected(a)
		})
		s.passes(lease, "30s pass: the session of A ends", "过了 30 秒：A 的会话结束")
		n.owner = ""
		b.step("creates the node: A and B are both inside", "建节点：A、B 同时在里面", b.locks(n.lockOrWatch))
		c.step("the node is there: waits for an event", "节点已存在：等事件", c.waits(n.lockOrWatch))
		s.passes(lease, fmt.Sprintf("the network of C is cut for %v", lease), "C 的网络断了 30 秒")
		n.event <- "session expired"
		c.step("takes the event for the end of the node: B and C are both inside", "以为事件就是节点没了：B、C 同时在里面",
			c.tries(func(c *client) bool { return woken(n, c) }))
	}
}
