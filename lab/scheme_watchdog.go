package lab

import (
	"context"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/internal/history"
)

// watched is a lock that a watchdog renews until stop is closed. The watchdog is a loop in a
// goroutine of its own in real life; here the schedule gives it its turns.
type watched struct {
	key  string
	stop chan struct{}
}

func (w watched) lock(c *client) bool {
	return c.ok("SET", w.key, c.name, "EX", seconds, "NX")
}

// renew is a turn of the watchdog.
func (w watched) renew(c *client) {
	select {
	case <-w.stop:
	default:
		c.eval(compareAndExpire, []any{w.key}, c.name, seconds)
	}
}

func (w watched) unlock(c *client) {
	close(w.stop)
	c.eval(compareAndDelete, []any{w.key}, c.name)
}

// renewing lets so many thirds of a lease go by. After each, every watchdog of c has its turn.
func (c *client) renewing(thirds int, all []watched, en, zh string) {
	c.stage.step(en, zh, func() {
		for range thirds {
			c.skip(lease / 3)
			for _, w := range all {
				w.renew(c)
			}
		}
	})
}

// workThenUnlock does not unlock if the work panics.
func workThenUnlock(work, unlock func()) {
	work()
	unlock()
}

var watchdogOutlivesWork = Experiment{
	Breaks: []history.Rule{history.Stuck},
	scheme: workPanics(workThenUnlock),
	ours: func(s *stage) {
		a, b, _ := s.users()
		a.step("takes the lock with Do", "用 Do 拿到锁", a.panicsInDo)
		b.step("Do has released it: takes the lock", "Do 已经释放：拿到锁", b.tries)

		s.turnTo("again")
		a.ttl = shortLease
		a.step("takes another lock, which it must tick", "拿到另一把锁，有进展才续期", func() {
			a.locksAs("Lock(Progress)", fencelock.Progress(shortLease))
		})
		a.step("its work panics, and nobody releases", "任务 panic，没人释放", func() {
			a.recovers(workFails)
		}, a.dies)
		b.step("no tick, no renewal: gets it when the lease has ended", "没有进展就不续期：租约一到期就拿到", b.locks)
	},
}

// workPanics is the schedule for a watchdog of work that panics under the lock.
func workPanics(handler func(work, unlock func())) func(*stage) {
	return func(s *stage) {
		a, b, _ := s.clients()
		w := watched{s.key(), make(chan struct{})}
		a.step("takes the lock; a watchdog renews it", "拿到锁，看门狗负责续期", a.locks(w.lock))
		a.step("its work panics; the server goes on, and so does the watchdog", "任务 panic；服务没有退出，看门狗也还在", func() {
			a.recovers(func() { handler(workFails, a.unlocks(w.unlock)) })
		}, a.dies)
		b.step("wants the lock", "想要这把锁", b.comes(lockWithOwner))
		a.renewing(6, []watched{w}, "a minute passes", "过了一分钟")
		b.step("still waits, and will while the process of A lives", "还在等；A 的进程活多久就等多久", b.tries(lockWithOwner))
	}
}

// workFails is work with a mistake.
func workFails() { panic("the work failed") }

// panicsInDo takes the lock for work that panics.
func (u *user) panicsInDo() {
	u.event(history.Enter)
	panicked := u.recovers(func() {
		err := u.locker.Do(u.ctx, u.key(), func(_ context.Context, l *fencelock.Lease) error {
			u.granted("Do", l, u.now())
			u.step("its work panics; the server goes on", "任务 panic；服务没有退出")
			u.event(history.Release)
			workFails()
			return nil
		})
		u.check(err)
	})
	u.want(panicked, "the work of %s did not panic", u.name)
	u.until("the line is empty", func() bool { return len(u.look()) == 0 })
	u.event(history.Left)
}

// oneForAll is the stop channel of a client, which both of its locks have.
func oneForAll() (first, second chan struct{}) {
	stop := make(chan struct{})
	return stop, stop
}

var sharedStopChannel = Experiment{
	Breaks: []history.Rule{history.Exclusion},
	scheme: releaseOfAnother(oneForAll),
	ours: func(s *stage) {
		a, b, _ := s.users()
		a.ttl = watchedLease
		a.step("takes the lock for 3s; the work takes longer", "拿到锁 3 秒；活儿更长", a.locks)
		first := a.lease
		s.turnTo("another")
		a.step("takes another lock", "又拿到另一把锁", a.locks)
		a.step("gives the other back", "释放后一把", a.releases)
		s.turnTo(firstKey)
		a.lease = first
		s.step("more than 3s pass", "过了 3 秒多", a.outlives)
		b.step("A was renewed, and holds it", "A 已续期，仍然持有", b.refused)
		passesOn(a, b)
	},
}

// releaseOfAnother is the schedule for a client that has two locks, each with a watchdog.
func releaseOfAnother(stops func() (first, second chan struct{})) func(*stage) {
	return func(s *stage) {
		a, b, _ := s.clients()
		stop, stopAnother := stops()
		w, another := watched{firstKey, stop}, watched{"another", stopAnother}
		both := []watched{w, another}
		a.step("takes the lock; a watchdog renews it", "拿到锁，看门狗负责续期", a.locks(w.lock))
		s.turnTo(another.key)
		a.step("takes another lock; a second watchdog", "又拿到另一把锁，另一个看门狗", a.locks(another.lock))
		a.renewing(1, both, "10s pass", "过了 10 秒")
		a.step("gives the other back: closes the channel, and both watchdogs end", "释放后一把：关掉 channel，两个看门狗都停了",
			a.unlocks(another.unlock))
		s.turnTo(w.key)
		a.renewing(3, both, "30s pass, and nobody renews", "过了 30 秒，没人续期")
		b.step("takes the lock: A and B are both inside", "拿到锁：A、B 同时在里面", b.comes(lockWithOwner))
		a.step("has finished, and closes the channel again", "干完了，又去关同一个 channel", func() {
			if a.recovers(a.unlocks(w.unlock)) {
				a.dies()
			}
		})
	}
}
