package zklock

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"
)

// crowd is what this process knows of a limit on connections from one host (maxClientCnxns, 60
// by default). A server at its limit closes a connection as soon as it has accepted it.
//
// A client that has met the limit begins a session only where two more connections fit, and
// pauses between its attempts. Otherwise clients that want to wait for a lock take the place
// of a holder whose connection broke for a moment: it could not come back, and would lose its
// lock. A client that has a session comes back at once.
type crowd struct {
	mu    sync.Mutex
	met   bool          // a connection ended before the server had said anything
	pause time.Duration // after the attempt that failed last
	next  time.Time     // no attempt before
	look  time.Duration // how long a server at its limit may take to close a connection, at least
}

const (
	firstPause   = time.Second
	longestPause = 15 * time.Second
	lookAround   = 100 * time.Millisecond
)

// crowds are shared by all Backends with the same servers: a command that waits for room opens one
// after the other.
var crowds sync.Map

func crowdOf(servers []string) *crowd {
	c, _ := crowds.LoadOrStore(strings.Join(servers, ","), &crowd{look: lookAround})
	return c.(*crowd)
}

var errCrowded = errors.New("the server closes connections before it responds: it is starting, or this host has " +
	"as many connections as the server allows (maxClientCnxns in zoo.cfg, 60 by default)")

// meet notes that a connection ended with err before the server had said anything.
func (c *crowd) meet(err error) {
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.met = true
	}
}

// leave notes that a session has begun or goes on.
func (c *crowd) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.met, c.pause, c.next = false, 0, time.Time{}
}

// err says what keeps connections from being made, if that is known.
func (c *crowd) err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.met {
		return errCrowded
	}
	return nil
}

// enter returns a connection to an address if there is room for two. If there is none it returns
// errCrowded, and until the pause is over without asking the server.
func (c *crowd) enter(network, address string, timeout time.Duration) (net.Conn, error) {
	c.mu.Lock()
	early := time.Now().Before(c.next)
	c.mu.Unlock()
	if early {
		return nil, errCrowded
	}
	begun := time.Now()
	conn, err := net.DialTimeout(network, address, timeout)
	if err != nil {
		return nil, err
	}
	look := max(c.look, time.Since(begun))
	if !closes(conn, look/2) { // it counts by now
		spare, err := net.DialTimeout(network, address, timeout)
		if err == nil {
			full := closes(spare, look)
			spare.Close()
			if !full {
				return conn, conn.SetReadDeadline(time.Time{})
			}
		}
	}
	conn.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pause = min(max(2*c.pause, firstPause), longestPause)
	c.next = time.Now().Add(c.pause/2 + rand.N(c.pause/2))
	return nil, errCrowded
}

// closes reports whether the server closes a connection within a time. It says nothing unasked.
func closes(conn net.Conn, within time.Duration) bool {
	_ = conn.SetReadDeadline(time.Now().Add(within))
	_, err := conn.Read(make([]byte, 1))
	var timeout net.Error
	return !errors.As(err, &timeout) || !timeout.Timeout()
}
