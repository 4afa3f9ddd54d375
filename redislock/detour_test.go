package redislock

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
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
}

func (f *front) hang() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hangs = true
}

func (f *front) wake(answer string) {
	f.mu.Lock()
	f.late = answer
	f.mu.Unlock()
	close(f.woken)
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
func clusterThrough(t *testing.T, g *group, f *front) *redis.ClusterClient {
	t.Helper()
	rdb := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: g.cluster.Addrs(),
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			var d net.Dialer
			c, err := d.DialContext(ctx, network, addr)
			if err == nil && addr == f.addr {
				return &hungConn{Conn: c, front: f}, nil
			}
			return c, err
		},
	})
	t.Cleanup(func() { rdb.Close() })
	return rdb
}

// What was tried elsewhere while its master hung is not sent again when that one wakes up
// and says where the lock is now: its holder may have left meanwhile, and a claim would
// stand in line that nobody knows of.
func TestLateAnswerOfAHangingMasterIsNotFollowed(t *testing.T) {
	t.Parallel()
	g := clusterGroup(t)
	const key = "key"
	m := g.master(key)
	f := &front{addr: m.Addr(), woken: make(chan struct{})}
	b := closing(t, New(clusterThrough(t, g, f), nil))
	leave(t, b, hold(t, b, mutex(key))) // the map, the connections
	f.hang()
	type answer struct {
		k   driver.Ticket
		err error
	}
	got := make(chan answer, 1)
	begun := time.Now()
	go func() {
		k, err := b.Enter(context.Background(), mutex(key))
		got <- answer{k, err}
	}()
	g.handOver(m)
	handed := time.Since(begun)
	a := <-got
	if a.err != nil || !a.k.Granted {
		t.Fatalf("Enter answered %+v, %v", a.k, a.err)
	}
	if took := time.Since(begun); took > max(handed, lateMap)+2*time.Second {
		t.Errorf("Enter took %v, and the replica had the place after %v", took, handed)
	}
	leave(t, b, a.k)
	f.wake(fmt.Sprintf("-MOVED %d %s\r\n", g.cluster.Slot(b.record(key)), g.master(key).Addr()))
	for end := time.Now().Add(500 * time.Millisecond); time.Now().Before(end); {
		if l := line(t, b, key); len(l.Claims) > 0 {
			t.Fatalf("everybody has left, and the line is %+v", l)
		}
	}
}
