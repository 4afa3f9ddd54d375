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

// greetings are what a Redis says to a client that it does not take, before it hangs up: it has as many as it takes, or
// takes those of its own host alone.
var greetings = []string{"-ERR max number of clients reached", "-DENIED Redis is running in protected mode"}

// turnedAway is such an answer, a redis.Error. Without ERR in front, go-redis does not retry the request: the caller
// decides whether to wait.
type turnedAway string

func (t turnedAway) Error() string { return string(t) }
func (turnedAway) RedisError()     {}

// tellingWhy has connections say why the server does not take them. It says so and hangs up before it is asked.
// go-redis takes that for a server without HELLO, and then reports a broken pipe.
func tellingWhy(dial dialFunc) dialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		told := &tellingConn{Conn: c}
		if raw, ok := c.(syscall.Conn); ok { // go-redis looks whether an idle connection still stands
			return rawTellingConn{told, raw}, nil
		}
		return told, nil
	}
}

type tellingConn struct {
	net.Conn
	begun atomic.Bool
	why   atomic.Pointer[turnedAway]
}

type rawTellingConn struct {
	*tellingConn
	syscall.Conn
}

// Read returns turnedAway instead of that answer.
func (c *tellingConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 && !c.begun.Swap(true) {
		for _, g := range greetings {
			if bytes.HasPrefix(p[:n], []byte(g)) {
				why := turnedAway(strings.TrimPrefix(g[1:], "ERR "))
				c.why.Store(&why)
			}
		}
	}
	if why := c.why.Load(); why != nil {
		return 0, *why
	}
	return n, err
}

// Write looks for that answer if the server has hung up before it was read.
func (c *tellingConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if err == nil {
		return n, nil
	}
	if !c.begun.Load() && c.SetReadDeadline(time.Now().Add(time.Second)) == nil {
		_, _ = c.Read(make([]byte, 128))
	}
	return n, c.orWhy(err)
}

// SetReadDeadline says so of a connection that go-redis has closed after that answer.
func (c *tellingConn) SetReadDeadline(t time.Time) error { return c.orWhy(c.Conn.SetReadDeadline(t)) }

// SetWriteDeadline is like SetReadDeadline.
func (c *tellingConn) SetWriteDeadline(t time.Time) error { return c.orWhy(c.Conn.SetWriteDeadline(t)) }

// SetDeadline is like SetReadDeadline.
func (c *tellingConn) SetDeadline(t time.Time) error { return c.orWhy(c.Conn.SetDeadline(t)) }

func (c *tellingConn) orWhy(err error) error {
	if why := c.why.Load(); err != nil && why != nil {
		return *why
	}
	return err
}
