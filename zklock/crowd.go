package zklock

import (
	"context"
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
// A session stays only if one more connection fits when it begins. Otherwise it is closed at
// once, and the process pauses. Without this rule a process that begins while the connection of
// a holder is broken takes the holder's place: the holder cannot come back, and loses its lock.
// A session that has stayed comes back without being asked again.
type crowd struct {
	mu    sync.Mutex
	met   bool          // a connection ended before the server had said anything
	pause time.Duration // after the attempt that failed last
	next  time.Time     // no attempt before
}

const (
	firstPause   = 50 * time.Millisecond
	longPause    = 200 * time.Millisecond // a call does not wait for the end of a longer one
	longestPause = 15 * time.Second
	lookAround   = time.Second // a busy server takes as long to close a connection that it has no room for
)

// crowds are shared by all Backends with the same servers: a command that waits for room opens one
// after the other.
var crowds sync.Map

func crowdOf(servers []string) *crowd {
	c, _ := crowds.LoadOrStore(strings.Join(servers, ","), &crowd{})
	return c.(*crowd)
}

var errCrowded = errors.New("the server closes connections before it responds: it is starting, or this host has " +
	"as many connections as the server allows (maxClientCnxns in zoo.cfg, 60 by default)")

// meet notes that a connection ended with err before the server had said anything.
func (c *crowd) meet(err error) {
	if endedByServer(err) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.met = true
	}
}

// endedByServer reports whether err is how the end of a connection is seen that the server closes.
func endedByServer(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// leave notes that a session stays, or is back.
func (c *crowd) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.met, c.pause, c.next = false, 0, time.Time{}
}

// turnAway begins a pause, because there is no room.
func (c *crowd) turnAway() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.met = true
	c.pause = min(max(2*c.pause, firstPause), longestPause)
	c.next = time.Now().Add(c.pause/2 + rand.N(c.pause/2))
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

// left returns how long the pause lasts.
func (c *crowd) left() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Until(c.next)
}

// sitOut waits until a short pause is over. It returns false if the pause is long, or ctx ends.
func (c *crowd) sitOut(ctx context.Context) bool {
	left := c.left()
	if left > longPause {
		return false
	}
	select {
	case <-time.After(left):
		return true
	case <-ctx.Done():
		return false
	}
}

// hasRoom reports whether the server called name allows one more connection to its address at.
// ZooKeeper says something to every word of four letters. Other servers may not know them: these
// have no room if they close a connection unasked.
func (b *Backend) hasRoom(at, name string) bool {
	text, _, err := b.fourLetters(b.ctx, at, name, "ruok")
	if text != "" || err != nil && !endedByServer(err) {
		return true
	}
	spare, err := net.DialTimeout("tcp", at, lookAround)
	if err == nil {
		defer spare.Close()
		_ = spare.SetReadDeadline(time.Now().Add(lookAround))
		_, err = spare.Read(make([]byte, 1))
	}
	return !endedByServer(err)
}
