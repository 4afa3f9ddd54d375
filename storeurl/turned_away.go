package storeurl

import (
	"bytes"
	"context"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// fullAnswer is what a Redis with as many clients as it takes says to the next one.
const fullAnswer = "-ERR max number of clients reached"

// fullError is that answer, a redis.Error. Without ERR in front, go-redis does not retry the request: the caller
// decides whether to wait.
type fullError struct{}

func (fullError) Error() string { return strings.TrimPrefix(fullAnswer, "-ERR ") }
func (fullError) RedisError()   {}

// tellingFull has connections say that the server is full. Such a server says so and hangs up before it is
// asked. go-redis takes that for a server without HELLO, and then reports a broken pipe.
func tellingFull(dial dialFunc) dialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		told := &fullConn{Conn: c}
		if raw, ok := c.(syscall.Conn); ok { // go-redis looks whether an idle connection still stands
			return rawFullConn{told, raw}, nil
		}
		return told, nil
	}
}

type fullConn struct {
	net.Conn
	begun, full atomic.Bool
}

type rawFullConn struct {
	*fullConn
	syscall.Conn
}

// Read returns a fullError instead of that answer.
func (c *fullConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 && !c.begun.Swap(true) && bytes.HasPrefix(p[:n], []byte(fullAnswer)) {
		c.full.Store(true)
	}
	if c.full.Load() {
		return 0, fullError{}
	}
	return n, err
}

// Write looks for that answer if the server has hung up before it was read.
func (c *fullConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if err == nil {
		return n, nil
	}
	if !c.begun.Load() && c.SetReadDeadline(time.Now().Add(time.Second)) == nil {
		_, _ = c.Read(make([]byte, 128))
	}
	return n, c.orFull(err)
}

// SetReadDeadline says so of a connection that go-redis has closed after that answer.
func (c *fullConn) SetReadDeadline(t time.Time) error { return c.orFull(c.Conn.SetReadDeadline(t)) }

// SetWriteDeadline is like SetReadDeadline.
func (c *fullConn) SetWriteDeadline(t time.Time) error { return c.orFull(c.Conn.SetWriteDeadline(t)) }

// SetDeadline is like SetReadDeadline.
func (c *fullConn) SetDeadline(t time.Time) error { return c.orFull(c.Conn.SetDeadline(t)) }

func (c *fullConn) orFull(err error) error {
	if err != nil && c.full.Load() {
		return fullError{}
	}
	return err
}
