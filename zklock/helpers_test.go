package zklock

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/faultproxy"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/internal/worker"
)

var eventually = testserver.WithinAMinute // the sessions of tests last longer

// renews renews k, whatever attempts that takes: a connection that broke is no loss.
func renews(t testing.TB, b *Backend, k driver.Ticket) {
	t.Helper()
	eventually(t, "the claim is renewed", func() bool {
		err := steps.Renew(t, b, k)
		if driver.Gone(err) || errors.Is(err, driver.ErrPermanent) {
			t.Fatalf("Renew: %v", err)
		}
		return err == nil
	})
}

// within is a context for one call that may not be answered.
func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// admin is a client of the server itself, past all that is ours.
func admin(t testing.TB, s *testserver.Server) *zk.Conn {
	t.Helper()
	c, _, err := zk.Connect([]string{s.Addr()}, 10*time.Second, zk.WithLogger(log.New(io.Discard, "", 0)))
	steps.Must(t, err)
	t.Cleanup(c.Close)
	return c
}

// server is the one that the tests of this package share, each below a prefix of its own, but for those that stop it.
var server = testserver.Shared(testserver.StartZooKeeper)

// prefix is where a test and its subtests keep what they keep.
func prefix(t testing.TB) string {
	name, _, _ := strings.Cut(t.Name(), "/")
	return "/" + name
}

// below is o with the test's prefix.
func below(t testing.TB, o *Options) *Options {
	own := *o
	if own.Prefix == "" {
		own.Prefix = prefix(t)
	}
	return &own
}

// tree lists all nodes below p.
func tree(t testing.TB, c *zk.Conn, p string) (all []string) {
	t.Helper()
	names, _, err := c.Children(p)
	if err == zk.ErrNoNode {
		return nil
	}
	steps.Must(t, err)
	for _, name := range names {
		all = append(all, p+"/"+name)
		all = append(all, tree(t, c, p+"/"+name)...)
	}
	return all
}

// leftBehind lists what is in the store beside the folders, marks with their
// containers, and what belongs to sessions that live.
func leftBehind(t testing.TB, c *zk.Conn) (left []string) {
	all := tree(t, c, prefix(t))
	for _, p := range all {
		switch {
		case p == prefix(t)+linesDir, p == prefix(t)+brokenDir, strings.HasPrefix(p, prefix(t)+sessionsDir):
		case strings.HasSuffix(p, "/"+markName), slices.Contains(all, p+"/"+markName):
		default:
			left = append(left, p)
		}
	}
	return left
}

// empty waits until nothing of ours is left but the folders.
func empty(t testing.TB, s *testserver.Server) {
	t.Helper()
	c := admin(t, s)
	var left []string
	defer func() {
		if len(left) > 0 {
			t.Log("left behind: ", left)
		}
	}()
	eventually(t, "nothing is left behind", func() bool {
		left = leftBehind(t, c)
		return len(left) == 0
	})
}

// nodes lists the claims in the line of key.
func nodes(t testing.TB, c *zk.Conn, key string) []string {
	t.Helper()
	names, _, err := c.Children(prefix(t) + linesDir + "/" + segment.Escape(key))
	if err != nil && err != zk.ErrNoNode {
		t.Fatal(err)
	}
	return names
}

// Requests, by the numbers that ZooKeeper gives them.
const (
	opGetData         = 4
	opPing            = 11
	opChildren        = 12 // getChildren2
	opMulti           = 14
	opCreateContainer = 19
	opSetAuth         = 100
)

func newProxy(t testing.TB, s *testserver.Server) *faultproxy.Proxy {
	t.Helper()
	return faultproxy.Start(t, s.Addr(), faultproxy.ZooKeeper)
}

// proxied has a test run beside others, on the common server and on a proxy before it.
func proxied(t *testing.T) (*testserver.Server, *faultproxy.Proxy) {
	t.Helper()
	t.Parallel()
	s := server(t)
	return s, newProxy(t, s)
}

// quietly is proxied with a Backend that is quiet.
func quietly(t *testing.T) (*testserver.Server, *faultproxy.Proxy, *Backend) {
	t.Helper()
	s, p := proxied(t)
	return s, p, quiet(t, p)
}

// oneSession has a test run beside others, with a Backend on the common server.
func oneSession(t *testing.T) (*testserver.Server, *Backend) {
	t.Helper()
	t.Parallel()
	s := server(t)
	return s, connect(t, long, s)
}

// twoSessions is oneSession with two of them.
func twoSessions(t *testing.T) (s *testserver.Server, b, other *Backend) {
	t.Helper()
	s, b = oneSession(t)
	return s, b, connect(t, long, s)
}

// op is the number of a request; 0 of that for a session.
func op(r *faultproxy.Request) int32 {
	if r.First {
		return 0
	}
	return int32(binary.BigEndian.Uint32(r.Data[8:]))
}

// requests returns the numbers of what was asked since Forget, without pings.
func requests(p *faultproxy.Proxy) (ops []int32) {
	for _, r := range p.Requests() {
		if o := op(&r); o != 0 && o != opPing {
			ops = append(ops, o)
		}
	}
	return ops
}

// once judges the first request with that number.
func once(number int32, a faultproxy.Action) func(*faultproxy.Request) faultproxy.Action {
	done := false
	return func(r *faultproxy.Request) faultproxy.Action {
		if done || op(r) != number {
			return faultproxy.Pass
		}
		done = true
		return a
	}
}

// through opens a Backend behind a proxy, and has its session begun. A busy server answers a
// short session's first requests too late now and then; the core asks again, and so does this.
func through(t testing.TB, p *faultproxy.Proxy, o *Options) *Backend {
	t.Helper()
	b := New([]string{p.Addr()}, below(t, o))
	t.Cleanup(func() { b.Close() })
	eventually(t, "the session has begun", func() bool { return b.Connect(t.Context()) == nil })
	return b
}

// expire has the server s end the session behind p, as if it had heard nothing of it for its time. p refuses
// connections from then on.
func expire(t testing.TB, s *testserver.Server, p *faultproxy.Proxy) {
	t.Helper()
	p.Forget()
	p.Cut()
	var hello []byte // with the session's password
	eventually(t, "the client comes back", func() bool {
		for _, r := range p.Requests() {
			if r.First {
				hello = r.Data
			}
		}
		return hello != nil
	})
	p.Refuse()
	closes := []byte{0, 0, 0, 8, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xf5} // closeSession, which is -11
	// The server hangs up also if a connection of the client that it comes to only now takes the session over.
	eventually(t, "the server closes the session", func() bool {
		conn, err := net.Dial("tcp", s.Addr())
		steps.Must(t, err)
		defer conn.Close()
		_, err = conn.Write(slices.Concat(hello, closes))
		steps.Must(t, err)
		answer, _ := io.ReadAll(conn) // to hello: its length, the version, the session's time; then that to closeSession
		if len(answer) < 12 {
			return false
		}
		gone := binary.BigEndian.Uint32(answer[8:]) == 0
		return gone || len(answer) > 4+int(binary.BigEndian.Uint32(answer))
	})
}

// watchJoins calls f before each join of b in its session. An error is the answer.
func watchJoins(t testing.TB, b *Backend, f func(ops []any) error) *session {
	t.Helper()
	s, err := b.session(t.Context())
	steps.Must(t, err)
	s.send = func(ops ...any) ([]zk.MultiResponse, error) {
		for _, op := range ops {
			if c, ok := op.(*zk.CreateRequest); ok && c.Flags == zk.FlagEphemeralSequential {
				if err := f(ops); err != nil {
					return nil, err
				}
			}
		}
		return s.zk.Multi(ops...)
	}
	return s
}

// loseNextJoin has the next join of b answered with a broken connection, and sends
// it when deliver is called, in the same session.
func loseNextJoin(t testing.TB, b *Backend) (deliver func() error) {
	t.Helper()
	var late []any
	s := watchJoins(t, b, func(ops []any) error {
		if late != nil {
			return nil
		}
		late = ops
		return zk.ErrConnectionClosed
	})
	return func() error {
		t.Helper()
		if late == nil {
			t.Fatal("there was no join")
		}
		// The container must be there, or the join would fail for want of it.
		err := s.create(b.lineOf("k"), zk.FlagContainer)
		if err != nil && err != zk.ErrNodeExists {
			t.Fatal(err)
		}
		// Nobody else enters meanwhile; only the barrier keeps it out.
		for i, op := range late {
			if c, ok := op.(*zk.SetDataRequest); ok && c.Path == b.lineOf("k") {
				late[i] = &zk.SetDataRequest{Path: c.Path, Version: -1}
			}
		}
		_, err = s.zk.Multi(late...)
		return err
	}
}

// store is where a worker takes its locks.
type store struct {
	Server, Prefix string
	Session        time.Duration
}

// workerSession is the session of workers that are to be killed.
const workerSession = 10 * time.Second

func TestMain(m *testing.M) {
	worker.Main(worker.On(func(s store) (driver.Backend, func(), error) {
		return New([]string{s.Server}, &Options{Prefix: s.Prefix, SessionTimeout: s.Session}), func() {}, nil
	}))
	testserver.Parallel(16)
	code := m.Run()
	testserver.StopShared(code != 0)
	os.Exit(code)
}

// lawSession is the session timeout where laws are played: long enough for a busy
// machine, short enough to be waited for.
const lawSession = 6 * time.Second

// laws are the options for a store on which a connection keeps claims alive.
var laws = []drivertest.Option{
	drivertest.Lease(500 * time.Millisecond),
	drivertest.ExpiryLag(lawSession + 5*time.Second),
	drivertest.Crash(func(b driver.Backend) { b.(*Backend).crash() }),
}

// crash ends b as kill -9 would: the server does not hear of it.
func (b *Backend) crash() {
	b.mu.Lock()
	s := b.newest
	b.mu.Unlock()
	if s != nil {
		s.end()
	}
	b.Close()
}

//verify:fault ZooKeeper | the laws
//verify:fault ZooKeeper | answers as the model does
func TestLaws(t *testing.T) {
	t.Parallel()
	open := opener(testserver.ZooKeeper(t))
	drivertest.Run(t, open, laws...)
	drivertest.Model(t, open)
}

// opener opens views as laws want them. The first two of each law have long leases;
// the server grants those that follow, which laws crash, a session that is short
// enough to be waited for.
func opener(servers ...*testserver.Server) drivertest.Opener {
	var mu sync.Mutex
	opened := map[*testing.T]int{}
	return func(t *testing.T) driver.Backend {
		b := connect(t, &Options{SessionTimeout: 9 * time.Minute}, servers...)
		mu.Lock()
		defer mu.Unlock()
		if opened[t]++; opened[t] > 2 {
			b.timeout = lawSession
		}
		return b
	}
}

func connect(t testing.TB, o *Options, servers ...*testserver.Server) *Backend {
	t.Helper()
	var addrs []string
	for _, s := range servers {
		addrs = append(addrs, s.Addr())
	}
	b := New(addrs, below(t, o))
	t.Cleanup(func() { b.Close() })
	return b
}
