package lab

import (
	"fmt"
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/fencelock/fencelock/etcdlock"
	"github.com/fencelock/fencelock/internal/history"
	"github.com/fencelock/fencelock/internal/testserver"
)

// etcd is an etcd of one member. Its sessions have names, in the order in which they began.
type etcd struct {
	*stage
	server   *testserver.Server
	kv       *clientv3.Client
	sessions []clientv3.LeaseID
}

func (s *stage) etcd() *etcd {
	e := &etcd{stage: s, server: s.serve(func(dir string) (*testserver.Server, error) {
		return testserver.StartEtcd(s.ctx, dir)
	})}
	e.kv = e.dial()
	return e
}

func (e *etcd) dial() *clientv3.Client {
	kv, err := clientv3.New(clientv3.Config{Endpoints: []string{e.server.Addr()}, Logger: zap.NewNop()})
	e.check(err)
	e.closers = append(e.closers, kv.Close)
	return kv
}

// session begins a session, as a process has one.
func (e *etcd) session() *concurrency.Session {
	session, err := concurrency.NewSession(e.dial(), concurrency.WithTTL(int(lease.Seconds())))
	e.check(err)
	e.closers = append(e.closers, session.Close)
	e.sessions = append(e.sessions, session.Lease())
	return session
}

// named is a key with the name of its session.
func (e *etcd) named(key string) string {
	prefix, lease, _ := strings.Cut(key, "/")
	i := slices.IndexFunc(e.sessions, func(id clientv3.LeaseID) bool { return fmt.Sprintf("%x", id) == lease })
	return fmt.Sprintf("%s/session-%d", prefix, i+1)
}

func (e *etcd) keys() (all []Text) {
	r, err := e.kv.Get(e.ctx, "lock/", clientv3.WithPrefix())
	e.check(err)
	for _, kv := range r.Kvs {
		all = append(all, same(e.named(string(kv.Key))))
	}
	return all
}

// lockWith takes a mutex of etcd's own package.
func (e *etcd) lockWith(m *concurrency.Mutex) func(*client) bool {
	return func(c *client) bool {
		c.check(m.Lock(c.ctx))
		c.record("m.Lock → ok, " + e.named(m.Key()))
		return true
	}
}

func (e *etcd) unlockWith(m *concurrency.Mutex) func(*client) {
	return func(c *client) {
		key := e.named(m.Key()) // it is forgotten then
		c.check(m.Unlock(c.ctx))
		c.record("m.Unlock → deletes " + key)
	}
}

var oneSession = Experiment{
	Breaks: []history.Rule{history.Exclusion},
	scheme: func(s *stage) {
		e := s.etcd()
		s.holds = e.keys
		a, b, c := s.client(nil, "A"), s.client(nil, "B"), s.client(nil, "C")
		shared, other := e.session(), e.session()
		one, two, three := concurrency.NewMutex(shared, "lock"), concurrency.NewMutex(shared, "lock"),
			concurrency.NewMutex(other, "lock")
		a.step("takes the lock with a mutex of the session of its process", "用本进程会话的 mutex 拿到锁",
			a.locks(e.lockWith(one)))
		b.step("is a goroutine of the same process, with a mutex of the same session: it is in at once",
			"同一进程的另一个 goroutine，用同一会话的另一个 mutex：立刻进来", b.locks(e.lockWith(two)))
		a.step("gives it back: that deletes the key of both", "释放：两个 mutex 共用的 key 没了", a.unlocks(e.unlockWith(one)))
		c.step("is another process: B and C are both inside", "另一个进程：B、C 同时在里面", c.locks(e.lockWith(three)))
	},
	ours: func(s *stage) {
		e := s.etcd()
		a, c := e.user("process 1"), e.user("process 2")
		a.name, c.name = "A", "C"
		b := &user{actor: actor{s, "B"}, locker: a.locker, wire: a.wire, left: a.left, ttl: lease}
		a.step("takes the lock", "拿到锁", a.locks)
		b.step("is a goroutine of the same process, and is refused", "同一进程的另一个 goroutine，被拒绝", b.refused)
		a.step("gives it back", "释放", a.releases)
		b.step("now it is free", "现在空闲了", b.tries)
		c.step("is another process, and is refused", "另一个进程，被拒绝", c.refused)
		passesOn(b, c)
	},
}

// user connects a process to etcd.
func (e *etcd) user(name string) *user {
	e.holds = func() []Text { return e.lineOf(etcdlock.New(e.kv, nil)) }
	return e.userOn(etcdlock.New(e.dial(), nil), nil, name, name)
}
