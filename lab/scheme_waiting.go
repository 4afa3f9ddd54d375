package lab

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/fencelock/fencelock/internal/history"
)

// pubSubLock sleeps until a message says that the lock is free.
func pubSubLock(c *client) bool {
	if lockWithOwner(c) {
		return true
	}
	c.between()
	return c.hears("freed") && pubSubLock(c)
}

func pubSubUnlock(c *client) {
	unlockOwn(c)
	c.do("PUBLISH", "freed", "lock")
}

// hears waits for a message. It would wait forever; the schedule does not.
func (c *client) hears(channel string) bool {
	ctx, cancel := context.WithTimeout(c.ctx, 100*time.Millisecond)
	defer cancel()
	messages := c.node.rdb.Subscribe(ctx, channel)
	defer messages.Close()
	_, err := messages.ReceiveMessage(ctx)
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) {
		err = c.ctx.Err()
		c.check(err)
		return false
	}
	c.check(err)
	return true
}

var pubSubOnly = Experiment{
	Breaks: []history.Rule{history.WakeUp},
	scheme: func(s *stage) {
		a, b, _ := s.clients()
		b.between = func() {
			a.step("gives it back, and tells nobody: nobody listens yet", "释放并发消息：还没有人在听", a.unlocks(pubSubUnlock))
			b.step("subscribes, and waits for a message", "订阅，等消息", func() { s.record("SUBSCRIBE freed") })
		}
		a.step("takes the lock", "拿到锁", a.locks(pubSubLock))
		b.step("the lock is taken: is about to subscribe", "锁被占了：正要订阅", b.waits(pubSubLock))
		s.passes(time.Hour, "an hour passes: the lock is free, and B sleeps", "过了一小时：锁空着，B 还在睡")
	},
	ours: func(s *stage) {
		a, b, _ := s.users()
		a.step("takes the lock", "拿到锁", a.locks)
		b.missesMessages()
		b.step("waits in line", "排队等待", b.waits)
		a.step("gives it back, and the message to B is lost", "释放，发给 B 的消息丢了", a.releases)
		b.step("reads the line by itself: the lock is its own", "自己重读队列：轮到它了", b.gets)
	},
}

// queueLock serves clients in order: it tries if it is this client's turn. Each takes its
// own name out of the queue when it has the lock, or gives up.
func queueLock(c *client) bool {
	if c.text("LINDEX", "queue", 0) != c.name || !c.setNX(c.name) {
		return false
	}
	c.do("LPOP", "queue")
	return true
}

func joinAndTry(c *client) bool {
	c.do("RPUSH", "queue", c.name)
	return queueLock(c)
}

var headOfTheQueue = Experiment{
	Breaks: []history.Rule{history.Stuck},
	scheme: func(s *stage) {
		a, b, c := s.clients()
		a.step("joins, is first, and takes the lock", "排队，排第一，拿到锁", a.locks(joinAndTry))
		b.step("joins and waits", "排队等待", b.waits(joinAndTry))
		c.step("joins behind B", "排在 B 后面", c.waits(joinAndTry))
		b.step("is killed while it waits", "等待时被杀死", b.dies)
		a.step("gives it back", "释放", a.unlocks(unlockOwn))
		c.step("it is B's turn", "轮到的是 B", c.answers(queueLock, false))
		s.passes(time.Hour, "an hour passes", "过了一小时")
		c.step("it is still B's turn", "轮到的还是 B", c.answers(queueLock, false))
	},
	ours: func(s *stage) {
		a, b, c := s.users()
		b.ttl = shortLease
		a.step("takes the lock", "拿到锁", a.locks)
		b.step("waits in line", "排队等待", b.waits)
		c.step("waits behind B", "排在 B 后面", c.waits)
		b.step("is killed while it waits", "等待时被杀死", b.isCutOff, func() { b.giveUp() }, b.dies)
		a.step("gives it back", "释放", a.releases)
		c.step("gets it when the lease of B has ended", "B 的租约一结束就拿到", c.gets)
	},
}
