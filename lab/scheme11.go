package lab

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/internal/history"
	"github.com/redis/go-redis/v9"
)

// goroutineLock takes the goroutine for the owner, as Java takes the thread. Who
// finds its own number in the lock enters again.
type goroutineLock struct {
	rdb     *redis.Client
	process *process
	ttl     time.Duration
}

const compareAndExpire = `
if redis.call('get', KEYS[1]) == ARGV[1] then
  return redis.call('expire', KEYS[1], ARGV[2])
end
return 0`

func (l *goroutineLock) Lock(ctx context.Context) (bool, error) {
	me := l.process.goroutine()
	if ok, err := l.rdb.SetNX(ctx, "lock", me, l.ttl).Result(); err != nil || ok {
		return ok, err
	}
	owner, err := l.rdb.Get(ctx, "lock").Result()
	return owner == me, err
}

// Renew is what the watchdog calls, from its own goroutine.
func (l *goroutineLock) Renew(ctx context.Context) (bool, error) {
	return l.rdb.Eval(ctx, compareAndExpire, []string{"lock"}, l.process.goroutine(), int(l.ttl.Seconds())).Bool()
}

func (l *goroutineLock) Unlock(ctx context.Context) error {
	return l.rdb.Eval(ctx, compareAndDelete, []string{"lock"}, l.process.goroutine()).Err()
}

// process numbers its goroutines from 1, the main goroutine, as each Go process does:
// the lab has several on stage, and one in fact.
type process struct {
	mu      sync.Mutex
	numbers map[string]int
}

func (p *process) goroutine() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.numbers == nil {
		p.numbers = map[string]int{}
	}
	id := goroutineOnStack()
	if p.numbers[id] == 0 {
		p.numbers[id] = len(p.numbers) + 1
	}
	return strconv.Itoa(p.numbers[id])
}

// goroutineOnStack reads "18" from "goroutine 18 [running]:", as it is taught.
func goroutineOnStack() string {
	b := make([]byte, 64)
	b = b[:runtime.Stack(b, false)]
	return string(bytes.Fields(b)[1])
}

var goroutineID = Experiment{
	Number: 11,
	Breaks: []history.Rule{history.Exclusion},
	scheme: func(s *stage) {
		n := s.redis("")
		a := &goroutineLock{s.client(n), &process{}, lease}
		b := &goroutineLock{s.client(n), &process{}, lease}
		c := &goroutineLock{s.client(n), &process{}, lease}
		s.at("A", "goroutine 1 takes the lock", "goroutine 1 拿到锁")
		s.locks("A", func() (bool, error) { return a.Lock(s.ctx) })
		s.at("", "10s pass", "过了 10 秒")
		s.pass(10 * time.Second)
		s.at("A", "its watchdog is goroutine 2: “not mine”, and does not renew", "看门狗是 goroutine 2：“不是我的”，不续租")
		renewed, err := a.renewBehind(s.ctx)
		s.check(err)
		s.want(!renewed, "the watchdog renewed")
		s.at("B", "is goroutine 1 of another process: “mine already”", "另一个进程的 goroutine 1：“本来就是我的”")
		s.locks("B", func() (bool, error) { return b.Lock(s.ctx) })
		s.at("", "20s pass", "又过了 20 秒")
		s.pass(20 * time.Second)
		s.at("C", "the lease was never renewed: takes the lock as well", "从没续过租：也拿到了锁")
		s.locks("C", func() (bool, error) { return c.Lock(s.ctx) })
	},
	ours: func(s *stage) {
		n := s.redis("")
		a, b := s.user(n, "A", "goroutine 1"), s.user(n, "B", "goroutine 1")
		s.at("A", "takes the lock for 1s, as “goroutine 1”", "以 “goroutine 1” 之名拿到锁 1 秒")
		a.lock(fencelock.TTL(watchedLease))
		s.at("B", "has the same name, and is refused", "名字相同，仍被拒绝")
		b.try(false)
		s.at("", "more than 1s passes", "过了 1 秒多")
		a.outlives()
		s.at("B", "A was renewed, and holds it", "A 已续租，仍然持有")
		b.try(false)
		s.at("A", "gives it back", "释放")
		a.release()
		s.at("B", "now it is free", "现在空闲了")
		b.try(true)
	},
}

// renewBehind is one beat of the watchdog.
func (l *goroutineLock) renewBehind(ctx context.Context) (renewed bool, err error) {
	var group sync.WaitGroup
	group.Go(func() { renewed, err = l.Renew(ctx) })
	group.Wait()
	if errors.Is(err, redis.Nil) {
		err = nil
	}
	return renewed, err
}
