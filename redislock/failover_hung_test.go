package redislock

import (
	"fmt"
	"net"
	"os"
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
	deadline  time.Time
}

func (c *hungConn) SetReadDeadline(t time.Time) error {
	c.deadline = t
	return c.Conn.SetReadDeadline(t)
}

func (c *hungConn) SetDeadline(t time.Time) error {
	c.deadline = t
	return c.Conn.SetDeadline(t)
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
	select {
	case <-c.front.woken:
	case <-time.After(time.Until(c.deadline)):
		return 0, os.ErrDeadlineExceeded
	}
	c.front.mu.Lock()
	defer c.front.mu.Unlock()
	return copy(b, c.front.late), nil
}

// clusterThrough opens a client that reaches one node through a front.
func clusterThrough(t *testing.T, g *group, f *front) *redis.ClusterClient {
	t.Helper()
	return clusterOver(t, g, func(c net.Conn, addr string) net.Conn {
		// A map that nobody has asked for names loopback addresses without the host.
		if strings.HasSuffix(f.addr, addr[strings.LastIndexByte(addr, ':'):]) {
			return &hungConn{Conn: c, front: f}
		}
		return c
	})
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

// A request that was sent again while its master hung is not sent once more when that master
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
		tookAtMost(t, begun, handed+20*time.Second)
		leave(t, b, driver.Ticket{Claim: claims[i]})
	}
	f.wake(fmt.Sprintf("-MOVED %d %s\r\n", g.cluster.Slot(b.hashName(key)), r.Addr()))
	for end := time.Now().Add(500 * time.Millisecond); time.Now().Before(end); {
		if l := line(t, b, key); len(l.Claims) > 0 {
			t.Fatalf("everybody has left, and the line is %+v", l)
		}
	}
}
