package lab

import (
	"errors"
	"fmt"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/internal/history"
	"github.com/fencelock/fencelock/memlock"
)

// sessions is any service that grants leases: ZooKeeper, etcd, Consul. This one lives
// in memory, and keeps every rule that a lease can keep.
type sessions struct {
	now    func() time.Duration
	holder string
	ends   time.Duration
}

func (l *sessions) Lock(owner string, ttl time.Duration) bool {
	if l.holder != "" && l.now() < l.ends {
		return false
	}
	l.holder, l.ends = owner, l.now()+ttl
	return true
}

var pausedHolder = Experiment{
	Number: 9,
	Breaks: []history.Rule{history.Fence},
	scheme: func(s *stage) {
		l := &sessions{now: s.now}
		s.holds = func() []Text { return []Text{same("holder = " + l.holder)} }
		lock := func(owner string) func() (bool, error) {
			return func() (bool, error) {
				ok := l.Lock(owner, lease)
				s.record(fmt.Sprintf("Lock(%s) → %v", owner, ok))
				return ok, nil
			}
		}
		s.at("A", "takes the lock for 30s", "拿到锁，30 秒")
		s.locks("A", lock("A"))
		s.at("A", "is about to write, and is stopped", "正要写入，进程停住了")
		s.event(history.Pause, "A")
		s.at("", "30s pass", "过了 30 秒")
		s.pass(lease)
		s.at("B", "takes the lock, and writes", "拿到锁，写入")
		s.locks("B", lock("B"))
		s.writes("B")
		s.at("A", "goes on where it was: its write overwrites B's", "醒来接着干：它的写入盖掉了 B 的")
		s.event(history.Resume, "A")
		s.writes("A")
	},
	ours: func(s *stage) {
		store := memlock.New()
		a, b := s.userOn(store, "A"), s.userOn(store, "B")
		s.showLine(store)
		g := guard{s: s}
		s.at("A", "takes the lock", "拿到锁")
		a.lock(fencelock.TTL(shortLease))
		s.at("A", "is about to write, and is stopped", "正要写入，进程停住了")
		a.wire.sever()
		s.event(history.Pause, "A")
		s.at("B", "takes the lock when the lease has ended, and writes", "租约到期后拿到锁，写入")
		b.lock()
		g.write(b, true)
		s.at("A", "goes on where it was: its write is refused", "醒来接着干：写入被拒绝")
		s.event(history.Resume, "A")
		a.wire.mend()
		g.write(a, false)
		s.at("A", "looks, and knows that the lock is lost", "一看，就知道锁丢了")
		a.looks()
	},
}

// looks asks a lease that has ended for its state.
func (u *user) looks() {
	err := u.lease.Err()
	u.s.want(errors.Is(err, fencelock.ErrExpired), "Err of a lease that has ended is %v", err)
	u.s.event(history.Loss, u.name)
	u.s.record("Err() → ErrExpired")
}
