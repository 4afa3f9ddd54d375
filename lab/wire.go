package lab

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync"

	"github.com/fencelock/fencelock/driver"
)

// wire is the network between a process and its store.
type wire struct {
	mu    sync.Mutex
	cut   bool // what is sent arrives when the wire is mended
	muted bool // what the store pushes is lost
	down  bool // nobody can connect
	conns []*wireConn
}

func (w *wire) sever() { w.set(func() { w.cut = true }) }
func (w *wire) mute()  { w.set(func() { w.muted = true }) }

// mend makes the wire whole, but for what is muted.
func (w *wire) mend() {
	w.set(func() {
		w.cut, w.down = false, false
		for _, c := range w.conns {
			_, _ = c.Conn.Write(c.held) // to nobody, if the process has given up
			c.held = nil
		}
	})
}

func (w *wire) set(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

func (w *wire) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	c := &wireConn{Conn: conn, wire: w}
	w.set(func() {
		w.conns = append(w.conns, c)
		if w.down {
			err = errors.Join(errors.New("timeout"), conn.Close())
		}
	})
	return c, err
}

// wireConn is one connection. It loses nothing before it has subscribed.
type wireConn struct {
	net.Conn
	wire   *wire
	held   []byte // what was sent through a wire that is cut
	pushes bool
}

func (c *wireConn) Write(b []byte) (n int, err error) {
	c.wire.set(func() {
		c.pushes = c.pushes || bytes.Contains(bytes.ToLower(b[:min(len(b), 64)]), []byte("subscribe"))
		if n = len(b); c.wire.cut {
			c.held = append(c.held, b...)
		} else {
			n, err = c.Conn.Write(b)
		}
	})
	return n, err
}

func (c *wireConn) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		var lost bool
		c.wire.set(func() { lost = c.pushes && c.wire.muted })
		if err != nil || !lost {
			return n, err
		}
	}
}

// leaves notes what the store answers to each Leave.
type leaves struct {
	driver.Backend
	answers chan error
}

func (l leaves) Leave(ctx context.Context, t driver.Ticket, e driver.Exit) error {
	err := l.Backend.Leave(ctx, t, e)
	if err == nil || driver.Gone(err) {
		select {
		case l.answers <- err:
		default:
		}
	}
	return err
}
