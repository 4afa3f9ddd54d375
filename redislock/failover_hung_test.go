package redislock

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/redis/go-redis/v9"
)

// front stands before a node: it swallows what is sent, and answers it late, as one that
// hung and is no master any more.
type front struct {
	addr  string
	mu    sync.Mutex
	hangs bool
	late  string // the answer to all that was swallowed
	woken chan struct{}
	once  sync.Once
}

func (f *front) hang() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hangs = true
}

func (f *front) wake(answer string) {
	f.once.Do(func() {
		f.mu.Lock()
		f.late = answer
		f.mu.Unlock()
		close(f.woken)
	})
}

func (f *front) heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hangs = false
}

func (f *front) swallows() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.hangs
}

// hungConn is a connection through a front.
type hungConn struct {
	net.Conn
	front     *front
	swallowed bool // by the one goroutine that uses it
}

func (c *hungConn) Write(b []byte) (int, error) {
	if c.front.swallows() {
		c.swallowed = true
		return len(b), nil
	}
	return c.Conn.Write(b)
}

func (c *hungConn) Read(b []byte) (int, error) {
	if !c.swallowed {
		return c.Conn.Read(b)
	}
	<-c.front.woken
	c.front.mu.Lock()
	defer c.front.mu.Unlock()
	return copy(b, c.front.late), nil
}

// clusterThrough opens a client that reaches one node through a front.
func clusterThrough(t *testing.T, g *group, f *front, change ...func(*redis.ClusterOptions)) *redis.ClusterClient {
	t.Helper()
	return clusterOver(t, g, func(c net.Conn, addr string) net.Conn {
		// A map that nobody has asked for names loopback addresses without the host.
		if strings.HasSuffix(f.addr, addr[strings.LastIndexByte(addr, ':'):]) {
			return &hungConn{Conn: c, front: f}
		}
		return c
	}, change...)
}

// clusterOver opens a client that has its connections wrapped.
func clusterOver(
	t *testing.T, g *group, wrap func(c net.Conn, addr string) net.Conn, change ...func(*redis.ClusterOptions),
) *redis.ClusterClient {
	t.Helper()
	o := &redis.ClusterOptions{
		Addrs: g.cluster.Addrs(),
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return wrap(c, addr), nil
		},
	}
	for _, f := range change {
		f(o)
	}
	rdb := redis.NewClusterClient(o)
	t.Cleanup(func() { rdb.Close() })
	return rdb
}

// confirmations are the ways to ask a node that may hang, each with a master of its own.
var confirmations = []struct {
	name string
	o    *Options
}{
	{"as it is", nil},
	{"with replicas that confirm", &Options{Replicas: 1}},
}

// brief is mutex with a shorter lease: a tombstone of what was sent twice lasts as long.
func brief(key string) driver.Claim {
	c := mutex(key)
	c.TTL = 20 * time.Second
	return c
}

// lateAfter is when a request to a master that hangs is tried at another node.
const lateAfter = 500 * time.Millisecond

// keyAt returns a key whose lock a master has.
func keyAt(t *testing.T, g *group, m *testserver.Server) string {
	t.Helper()
	for i := range 1000 {
		if key := fmt.Sprint("key-", i); g.master(key) == m {
			return key
		}
	}
	t.Fatalf("%s has none of a thousand keys", m.Addr())
	return ""
}

// A request that was tried elsewhere while its master hung is not sent again when that master
// wakes up and redirects it: it would make a claim that nobody knows of.
func TestLateAnswerOfAHangingMasterIsNotFollowed(t *testing.T) {
	t.Parallel()
	g := clusterGroup(t)
	for i, way := range confirmations {
		t.Run(way.name, func(t *testing.T) { lateAnswerIsNotFollowed(t, g, g.servers()[i], way.o) })
	}
	t.Run("one call for many locks", func(t *testing.T) {
		m := g.servers()[2]
		lateAnswerIsNotFollowed(t, g, m, &Options{Prefix: "fencelock:{" + keyAt(t, g, m) + "}:"})
	})
}

func lateAnswerIsNotFollowed(t *testing.T, g *group, m *testserver.Server, o *Options) {
	key := keyAt(t, g, m)
	f := &front{addr: m.Addr(), woken: make(chan struct{})}
	b := closing(t, New(clusterThrough(t, g, f), o))
	leave(t, b, hold(t, b, brief(key))) // the map, the connections
	f.hang()
	claims := []driver.Claim{brief(key), brief("b"), brief("c")}
	if o == nil || o.Prefix == "" {
		claims = claims[:1]
	}
	got := make(chan []string, 1)
	begun := time.Now()
	defer f.wake("-ERR the test is over\r\n")
	go func() { got <- together(t, b, enterAll(b, claims...)...) }()
	r := g.handOver(m)
	handed := time.Since(begun)
	for i, answer := range <-got {
		if !strings.HasPrefix(answer, "g") {
			t.Fatalf("Enter answered %s", answer)
		}
		tookAtMost(t, begun, max(handed, lateAfter)+2*time.Second)
		leave(t, b, driver.Ticket{Claim: claims[i]})
	}
	f.wake(fmt.Sprintf("-MOVED %d %s\r\n", g.cluster.Slot(b.recordName(key)), r.Addr()))
	for end := time.Now().Add(500 * time.Millisecond); time.Now().Before(end); {
		if l := line(t, b, key); len(l.Claims) > 0 {
			t.Fatalf("everybody has left, and the line is %+v", l)
		}
	}
}

// While the client's map names a master that hangs, only the first request waits. The next ones go
// to the replica that took its place, and back when the replica says so.
func TestStandInIsKeptUntilItIsNoMaster(t *testing.T) {
	t.Parallel()
	g := clusterGroup(t)
	for i, way := range confirmations {
		t.Run(way.name, func(t *testing.T) { standInIsKept(t, g, g.servers()[i], way.o) })
	}
}

func standInIsKept(t *testing.T, g *group, m *testserver.Server, o *Options) {
	key := keyAt(t, g, m)
	f := &front{addr: m.Addr(), woken: make(chan struct{})}
	defer f.wake("-ERR the test is over\r\n")
	ask := g.dial().(*redis.ClusterClient)
	now := redis.NewClusterSlotsCmd(t.Context(), "cluster", "slots") // in the shape of the option below
	must(t, ask.Process(t.Context(), now))
	slots := now.Val()
	b := closing(t, New(clusterThrough(t, g, f, func(o *redis.ClusterOptions) {
		o.ClusterSlots = func(context.Context) ([]redis.ClusterSlot, error) { return slots, nil } // for ever
	}), o))
	leave(t, b, hold(t, b, brief(key)))
	f.hang()
	r := g.handOver(m)
	eventually(t, "the group agrees", g.settled) // the old master confirms, as a replica
	began := time.Now()
	leave(t, b, hold(t, b, brief(key)))
	tookAtMost(t, began, 2*lateAfter+time.Second)
	began = time.Now()
	for range 5 {
		leave(t, b, hold(t, b, brief(key)))
	}
	tookAtMost(t, began, 4*lateAfter)
	f.heal()
	g.handOver(r) // back
	eventually(t, "the group agrees", g.settled)
	// A map that was never asked for names loopback addresses without the host: nobody is
	// found at the address that the replica names, and the core would ask again.
	eventually(t, "the way back is found", func() bool {
		k, err := b.Enter(t.Context(), brief(key))
		if err == nil {
			leave(t, b, k)
		}
		return err == nil
	})
	if n := b.transport.Failovers(); n > 0 {
		t.Errorf("%d nodes stand in for a master after it has its place again", n)
	}
}
