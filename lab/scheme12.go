package lab

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/fencelock/fencelock/internal/history"
	"github.com/redis/go-redis/v9"
)

// countedLock counts how often its owner has entered. It reads the count, adds one,
// and writes it back.
type countedLock struct {
	rdb   *redis.Client
	owner string
	ttl   time.Duration

	between func() // where the schedule steps in
}

func (l *countedLock) Lock(ctx context.Context) (bool, error) {
	owner, err := l.rdb.HGet(ctx, "lock", "owner").Result()
	if err != nil && !errors.Is(err, redis.Nil) || owner != "" && owner != l.owner {
		return false, ignoreNil(err)
	}
	count, err := l.rdb.HGet(ctx, "lock", "count").Int()
	if ignoreNil(err) != nil {
		return false, err
	}
	if l.between != nil {
		l.between()
	}
	if err := l.rdb.HSet(ctx, "lock", "owner", l.owner, "count", count+1).Err(); err != nil {
		return false, err
	}
	return true, l.rdb.Expire(ctx, "lock", l.ttl).Err()
}

func (l *countedLock) Unlock(ctx context.Context) error {
	left, err := l.rdb.HIncrBy(ctx, "lock", "count", -1).Result()
	if err != nil || left > 0 {
		return err
	}
	return l.rdb.Del(ctx, "lock").Err()
}

// listedReadLock keeps the names of its readers in one value, with commas.
type listedReadLock struct {
	rdb   *redis.Client
	owner string

	between func() // where the schedule steps in
}

func (l *listedReadLock) RLock(ctx context.Context) (bool, error) {
	readers, err := l.readers(ctx)
	if err != nil {
		return false, err
	}
	if l.between != nil {
		l.between()
	}
	return true, l.rdb.Set(ctx, "readers", strings.Join(append(readers, l.owner), ","), 0).Err()
}

func (l *listedReadLock) RUnlock(ctx context.Context) error {
	readers, err := l.readers(ctx)
	if err != nil {
		return err
	}
	readers = slices.DeleteFunc(readers, func(r string) bool { return r == l.owner })
	if len(readers) == 0 {
		return l.rdb.Del(ctx, "readers").Err()
	}
	return l.rdb.Set(ctx, "readers", strings.Join(readers, ","), 0).Err()
}

// Lock is the writer's: it gets in if nobody reads.
func (l *listedReadLock) Lock(ctx context.Context) (bool, error) {
	readers, err := l.readers(ctx)
	return err == nil && len(readers) == 0, err
}

func (l *listedReadLock) readers(ctx context.Context) ([]string, error) {
	text, err := l.rdb.Get(ctx, "readers").Result()
	if err != nil {
		return nil, ignoreNil(err)
	}
	return strings.Split(text, ","), nil
}

func ignoreNil(err error) error {
	if errors.Is(err, redis.Nil) {
		return nil
	}
	return err
}

var countInTwoSteps = Experiment{
	Number: 12,
	Breaks: []history.Rule{history.Reentrancy, history.ReadWrite},
	scheme: func(s *stage) {
		n := s.redis("")
		a := &countedLock{rdb: s.client(n), owner: "A", ttl: lease}
		again := &countedLock{rdb: s.client(n), owner: "A", ttl: lease}
		b := &countedLock{rdb: s.client(n), owner: "B", ttl: lease}
		s.at("A", "takes the lock", "拿到锁")
		s.locks("A", func() (bool, error) { return a.Lock(s.ctx) }, handle("1"))
		s.at("A", "one goroutine enters again, and reads 1", "一个 goroutine 重入，读到 1")
		a.between = func() {
			s.at("A", "another does too: reads 1, writes 2", "另一个也重入：读到 1，写入 2")
			s.again("A", func() (bool, error) { return again.Lock(s.ctx) }, handle("2"))
			s.at("A", "the first writes 2 as well: it is inside three times", "第一个也写入 2：其实进来了三次")
		}
		s.again("A", func() (bool, error) { return a.Lock(s.ctx) }, handle("3"))
		s.at("A", "two of the three give it back", "三个中的两个释放")
		s.event(history.Release, "A", handle("2"))
		s.check(a.Unlock(s.ctx))
		s.event(history.Release, "A", handle("3"))
		s.check(a.Unlock(s.ctx))
		s.at("B", "takes the lock, and A is still inside", "拿到锁，而 A 还在里面")
		s.locks("B", func() (bool, error) { return b.Lock(s.ctx) })

		s.turnTo("readers")
		ra := &listedReadLock{rdb: s.client(n), owner: "A"}
		rb, w := &listedReadLock{rdb: s.client(n), owner: "B"}, &listedReadLock{rdb: s.client(n), owner: "C"}
		s.at("B", "comes to read, and finds no readers", "来读，看到没有读者")
		rb.between = func() {
			s.at("A", "the same at the same time", "同时也来读")
			s.locks("A", func() (bool, error) { return ra.RLock(s.ctx) }, reading)
			s.at("B", "writes its list over A's", "把 A 的名单盖掉了")
		}
		s.locks("B", func() (bool, error) { return rb.RLock(s.ctx) }, reading)
		s.at("B", "has read, and leaves an empty list", "读完了，名单空了")
		s.unlocks("B", func() error { return rb.RUnlock(s.ctx) })
		s.at("C", "nobody seems to read: writes beside A", "好像没人在读：和 A 同时写")
		s.locks("C", func() (bool, error) { return w.Lock(s.ctx) })
	},
	ours: func(s *stage) {
		n := s.redis("")
		a, b, c := s.user(n, "A"), s.user(n, "B"), s.user(n, "C")
		s.at("A", "takes the lock", "拿到锁")
		a.lock()
		s.at("A", "two goroutines enter again at the same time", "两个 goroutine 同时重入")
		handles := a.enterAgain(2)
		s.at("A", "two of the three give it back", "三个中的两个释放")
		for _, h := range handles {
			a.releaseHandle(h)
		}
		s.at("B", "A is still inside", "A 还在里面")
		b.try(false)
		s.at("A", "the third gives it back", "第三个也释放")
		a.release()
		s.at("B", "now it is free", "现在空闲了")
		b.try(true)
		b.release()

		s.turnTo("readers")
		s.at("A", "comes to read", "来读")
		a.tryRead()
		s.at("B", "comes to read", "来读")
		b.tryRead()
		s.at("B", "has read", "读完了")
		b.release()
		s.at("C", "comes to write, and A still reads", "来写，A 还在读")
		c.try(false)
		s.at("A", "has read", "读完了")
		a.release()
		s.at("C", "now it is free", "现在空闲了")
		c.try(true)
	},
}

// turnTo makes another key the one that the actors want.
func (s *stage) turnTo(key string) {
	s.endStep()
	s.key = key
	s.keys = append(s.keys, key)
}
