package lab

import (
	"bytes"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/internal/history"
)

// process numbers its goroutines from 1, the main goroutine, as each Go process does:
// the lab has several on stage, and one in fact.
type process struct{ numbers map[string]int }

// goroutine reads "18" from "goroutine 18 [running]:", as it is taught.
func (p *process) goroutine() string {
	b := make([]byte, 64)
	id := string(bytes.Fields(b[:runtime.Stack(b, false)])[1])
	if p.numbers == nil {
		p.numbers = map[string]int{}
	}
	if p.numbers[id] == 0 {
		p.numbers[id] = len(p.numbers) + 1
	}
	return strconv.Itoa(p.numbers[id])
}

// lock takes the goroutine for the owner, as Java takes the thread. Who finds its own
// number in the lock enters again.
func (p *process) lock(c *client) bool {
	me := p.goroutine()
	return c.setNX(me) || c.text("GET", "lock") == me
}

const compareAndExpire = `
if redis.call('get', KEYS[1]) == ARGV[1] then
  return redis.call('expire', KEYS[1], ARGV[2])
end
return 0`

// renew is what the watchdog does, in its own goroutine.
func (p *process) renew(c *client) (done bool) {
	var me string
	var watchdog sync.WaitGroup
	watchdog.Go(func() { me = p.goroutine() })
	watchdog.Wait()
	return c.eval(compareAndExpire, []any{"lock"}, me, seconds) == int64(1)
}

var goroutineID = Experiment{
	Breaks: []history.Rule{history.Exclusion},
	scheme: func(s *stage) {
		a, b, c := s.clients()
		one, another, third := &process{}, &process{}, &process{}
		a.step("goroutine 1 takes the lock", "goroutine 1 拿到锁", a.locks(one.lock))
		s.passes(10*time.Second, "10s pass", "过了 10 秒")
		a.step("its watchdog is goroutine 2: “not mine”, and does not renew", "看门狗是 goroutine 2：“不是我的”，不续期", func() {
			s.want(!one.renew(a), "the watchdog renewed")
		})
		b.step("is goroutine 1 of another process: “mine already”", "另一个进程的 goroutine 1：“本来就是我的”",
			b.locks(another.lock))
		s.passes(20*time.Second, "20s pass", "又过了 20 秒")
		c.step("the lease was never renewed: takes the lock as well", "从没续过租：也拿到了锁", c.locks(third.lock))
	},
	ours: func(s *stage) {
		n := s.redis("")
		a, b := s.userAs(n, "A", "goroutine 1"), s.userAs(n, "B", "goroutine 1")
		a.ttl = watchedLease
		a.step("takes the lock for 3s, as “goroutine 1”", "以 “goroutine 1” 之名拿到锁 3 秒", a.locks)
		b.step("has the same name, and is refused", "名字相同，仍被拒绝", b.refused)
		s.step("more than 3s pass", "过了 3 秒多", a.outlives)
		b.step("A was renewed, and holds it", "A 已续期，仍然持有", b.refused)
		passesOn(a, b)
	},
}

// countedLock counts how often its owner has entered. It reads the count, adds one,
// and writes it back.
func countedLock(c *client) bool {
	if owner := c.text("HGET", "lock", "owner"); owner != "" && owner != c.name {
		return false
	}
	count, _ := strconv.Atoi(c.text("HGET", "lock", "count"))
	c.between()
	c.do("HSET", "lock", "owner", c.name, "count", count+1)
	return c.ok("EXPIRE", "lock", seconds)
}

func countedUnlock(c *client) {
	if c.do("HINCRBY", "lock", "count", -1) == int64(0) {
		c.do("DEL", "lock")
	}
}

// readers are the names that a read-write lock keeps in one value, with commas.
func readers(c *client) []string {
	text := c.text("GET", "readers")
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' })
}

func listedRLock(c *client) bool {
	all := readers(c)
	c.between()
	return c.ok("SET", "readers", strings.Join(append(all, c.name), ","))
}

func listedRUnlock(c *client) {
	rest := slices.DeleteFunc(readers(c), func(r string) bool { return r == c.name })
	if len(rest) == 0 {
		c.do("DEL", "readers")
		return
	}
	c.do("SET", "readers", strings.Join(rest, ","))
}

// listedLock is the writer's: it gets in if nobody reads.
func listedLock(c *client) bool { return len(readers(c)) == 0 }

var countInTwoSteps = Experiment{
	Breaks: []history.Rule{history.Reentrancy, history.ReadWrite},
	scheme: func(s *stage) {
		a, b, c := s.clients()
		another := s.client(a.node, "A") // another goroutine of A
		a.step("takes the lock", "拿到锁", a.locks(countedLock, handle("1")))
		a.between = func() {
			a.step("another does too: reads 1, writes 2", "另一个也重入：读到 1，写入 2", another.again(countedLock, handle("2")))
			a.step("the first writes 2 as well: it is inside three times", "第一个也写入 2：其实进来了三次")
		}
		a.step("one goroutine enters again, and reads 1", "一个 goroutine 重入，读到 1", a.again(countedLock, handle("3")))
		a.step("two of the three give it back", "三个中的两个释放", func() {
			for _, h := range []string{"2", "3"} {
				a.event(history.Release, handle(h))
				countedUnlock(a)
			}
		})
		b.step("takes the lock, and A is still inside", "拿到锁，而 A 还在里面", b.locks(countedLock))

		s.turnTo("readers")
		a.between = func() {}
		b.between = func() {
			a.step("the same at the same time", "同时也来读", a.locks(listedRLock, reading))
			b.step("writes its list over A's", "把 A 的名单盖掉了")
		}
		b.step("comes to read, and finds no readers", "来读，看到没有读者", b.locks(listedRLock, reading))
		b.step("has read, and leaves an empty list", "读完了，名单空了", b.unlocks(listedRUnlock))
		c.step("nobody seems to read: writes beside A", "好像没人在读：和 A 同时写", c.locks(listedLock))
	},
	ours: func(s *stage) {
		a, b, c := s.users()
		var handles []*fencelock.Lease
		a.step("takes the lock", "拿到锁", a.locks)
		a.step("two goroutines enter again at the same time", "两个 goroutine 同时重入", func() { handles = a.enterAgain(2) })
		a.step("two of the three give it back", "三个中的两个释放", func() {
			for _, h := range handles {
				a.event(history.Release, handle(fmt.Sprintf("%p", h)))
				a.check(h.Release(a.ctx))
				a.record("Release → ok")
			}
		})
		b.step("A is still inside", "A 还在里面", b.refused)
		a.step("the third gives it back", "第三个也释放", a.releases)
		b.step("now it is free", "现在空闲了", b.tries, b.releases)

		s.turnTo("readers")
		a.step("comes to read", "来读", a.reads)
		b.step("comes to read", "来读", b.reads)
		b.step("has read", "读完了", b.releases)
		c.step("comes to write, and A still reads", "来写，A 还在读", c.refused)
		a.step("has read", "读完了", a.releases)
		c.step("now it is free", "现在空闲了", c.tries)
	},
}

// enterAgain lets n goroutines enter again at the same time.
func (u *user) enterAgain(n int) (all []*fencelock.Lease) {
	got := make(chan outcome, n)
	for range n {
		go func() {
			l, err := u.locker.Lock(u.lease.Context(), u.key(), fencelock.Reentrant())
			got <- outcome{lease: l, err: err}
		}()
	}
	for range n {
		o := <-got
		u.check(o.err)
		u.event(history.Believe, token(int64(o.lease.Token())), handle(fmt.Sprintf("%p", o.lease)))
		u.want(o.lease.Token() == u.lease.Token(), "the re-entry has another token")
		u.record("Lock(Reentrant) → same token")
		all = append(all, o.lease)
	}
	return all
}

// reads tries to read, and wants to succeed.
func (u *user) reads() {
	u.event(history.Enter, reading)
	l, err := u.locker.RLock(u.ctx, u.key(), fencelock.Wait(0))
	u.check(err)
	u.lease = l
	u.event(history.Believe, token(int64(l.Token())))
	u.record("RLock → ok") // tokens of readers order nothing
}
