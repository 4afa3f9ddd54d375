package lab

import (
	"context"
	"strings"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/internal/history"
	"github.com/redis/go-redis/v9"
)

// tokenLock draws a token beside the lock, on one master.
type tokenLock struct {
	rdb   *redis.Client
	value string
	ttl   time.Duration
}

// Lock returns the token, or 0 if the lock is taken.
func (l *tokenLock) Lock(ctx context.Context) (int64, error) {
	ok, err := l.rdb.SetNX(ctx, "lock", l.value, l.ttl).Result()
	if err != nil || !ok {
		return 0, err
	}
	return l.rdb.Incr(ctx, "token").Result()
}

var oneMaster = Experiment{
	Number: 7,
	Breaks: []history.Rule{history.Exclusion, history.Tokens},
	excuse: func(v history.Violation) bool { return v.Rule == history.Exclusion },
	scheme: func(s *stage) {
		master, replica := s.pair()
		s.check(master.rdb.Set(s.ctx, "token", 33, 0).Err())
		s.check(master.rdb.Wait(s.ctx, 1, 10*time.Second).Err())
		a, b := &tokenLock{s.client(master), "A", lease}, &tokenLock{s.client(replica), "B", lease}
		s.cutLink(replica)
		s.at("A", "takes the lock on the master", "在主库上拿到锁")
		s.locksWithToken("A", a.Lock, 34)
		s.failover(master, replica)
		s.at("B", "takes the lock again, with the same token", "又拿到一次，token 相同")
		s.locksWithToken("B", b.Lock, 34)
	},
	ours: func(s *stage) {
		master, replica := s.pair()
		s.cutLink(replica)
		var g = guard{s: s}
		a := s.user(master, "A")
		s.at("A", "takes the lock on the master, and writes", "在主库上拿到锁，写入")
		a.lock(fencelock.TTL(watchedLease))
		g.write(a, true)
		s.failover(master, replica)
		b := s.user(replica, "B")
		s.at("B", "takes the lock again, with a larger token, and writes", "又拿到一次，token 更大，写入")
		b.lock()
		g.write(b, true)
		s.at("A", "does not know yet: its write is refused", "还不知道：写入被拒绝")
		g.write(a, false)
		s.at("A", "is told at its deadline", "到期限时得到通知")
		a.lost()
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
	s.at("", "the link to the replica is cut", "主从之间的链路断了")
	s.check(replica.rdb.Do(s.ctx, "replicaof", "127.0.0.1", "1").Err()) // nobody listens there
}

// failover ends the master and promotes the replica.
func (s *stage) failover(master, replica *node) {
	s.at("", "the master dies, and the replica is promoted", "主库宕机，从库被提升")
	s.check(master.server.Kill())
	s.check(replica.rdb.Do(s.ctx, "replicaof", "no", "one").Err())
}

// until waits for what happens by itself.
func (s *stage) until(what string, ok func() bool) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-s.ctx.Done():
			s.want(false, "waited in vain until %s: %v", what, s.ctx.Err())
		}
	}
}

// locksWithToken lets an actor lock, and wants this token.
func (s *stage) locksWithToken(actor string, lock func(context.Context) (int64, error), want int64) {
	s.locks(actor, func() (bool, error) {
		got, err := lock(s.ctx)
		s.want(err != nil || got == want, "%s has the token %d", actor, got)
		return got > 0, err
	}, token(want))
}
