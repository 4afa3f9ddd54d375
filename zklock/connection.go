package zklock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/go-zookeeper/zk"
)

// connection keeps a Backend connected and follows its sessions. One zk.Conn serves
// many TCP connections and many sessions: it begins a new session without a word when
// the last one has expired.
//
// A zk.Conn that has heard nothing for as long as a lease is replaced, and its session
// is left to run out. All claims of the session are lost by then. Each further attempt
// to connect could only hold up the next holder: the server starts the session's time
// again with the request to connect, also when the client never gets the answer. And
// the zk.Conn might never come back: servers that were restored from an old backup
// refuse a client that has seen a later state.
type connection struct {
	servers []string
	timeout time.Duration // the session timeout to ask for
	closed  <-chan struct{}
	ended   func(*session) // called once for each session that is over
	connect func(*client) (zkConn, error)

	mu         sync.Mutex
	shut       bool
	client     *client       // nil before the first call
	session    *session      // the newest; nil if there is none
	connected  bool          // session can be used now
	up         chan struct{} // closed while connected
	generation int           // counts handshakes that succeeded
	giveUp     *time.Timer   // runs while session is disconnected
}

// client is one zk.Conn with its transport.
type client struct {
	of      *connection
	zk      zkConn
	watches watches

	// Guarded by of.mu.
	transport *transport
	severed   bool // it must not connect any more
	handshake handshake
}

func newConnection(servers []string, timeout time.Duration, closed <-chan struct{}, ended func(*session)) *connection {
	return &connection{
		servers: servers, timeout: timeout, closed: closed, ended: ended,
		connect: connectZK, up: make(chan struct{}),
	}
}

func connectZK(cl *client) (zkConn, error) {
	conn, _, err := zk.Connect(cl.of.servers, cl.of.timeout,
		zk.WithDialer(cl.dial),
		zk.WithHostProvider(&serverList{}),
		zk.WithLogger(noLog{}),
		zk.WithLogInfo(false),
		zk.WithEventCallback(cl.event),
	)
	return conn, err
}

// await returns the current session as soon as it is connected. The first call
// connects.
func (c *connection) await(ctx context.Context) (*session, error) {
	for {
		s, up, err := c.open()
		if s != nil || err != nil {
			return s, err
		}
		select {
		case <-up:
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: there is no connection to any of %s", ctx.Err(), strings.Join(c.servers, ", "))
		case <-c.closed:
			return nil, driver.ErrClosed
		}
	}
}

// open returns the session if it is connected, and otherwise a channel that is closed
// when one is.
func (c *connection) open() (*session, <-chan struct{}, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.shut {
		return nil, nil, driver.ErrClosed
	}
	if c.client == nil {
		if err := c.start(); err != nil {
			return nil, nil, err
		}
	}
	if !c.connected {
		return nil, c.up, nil
	}
	return c.session, nil, nil
}

// start begins a new client. The caller holds c.mu.
func (c *connection) start() error {
	cl := &client{of: c}
	conn, err := c.connect(cl) // its events wait for c.mu
	if err != nil {
		return err
	}
	cl.zk, c.client = conn, cl
	return nil
}

// state returns the session, if it is connected, and the number of its connection.
func (c *connection) state() (*session, int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.connected {
		return nil, c.generation
	}
	return c.session, c.generation
}

// event follows the session. zk.Conn calls it from its own goroutine, before it sends
// anything in the new state: when a request is sent in a new session, the old one is
// known to be over.
func (cl *client) event(e zk.Event) {
	if e.Type != zk.EventSession {
		cl.watches.fire(e.Path)
		return
	}
	c := cl.of
	c.mu.Lock()
	var over *session
	if c.client == cl {
		over = c.follow(e.State)
	}
	c.mu.Unlock()
	if e.State == zk.StateDisconnected {
		cl.watches.fireAll()
	}
	c.end(over)
}

// follow returns the session that is over, if one is. The caller holds c.mu.
func (c *connection) follow(state zk.State) (over *session) {
	switch state {
	case zk.StateHasSession:
		c.stopGivingUp()
		if h := c.client.handshake; c.session == nil || c.session.id != h.session {
			over, c.session = c.session, newSession(c.client, h)
		}
		c.generation++
		if !c.connected {
			c.connected = true
			close(c.up)
		}
	case zk.StateExpired:
		c.stopGivingUp()
		over, c.session = c.session, nil
		c.disconnected()
	case zk.StateDisconnected, zk.StateConnecting, zk.StateAuthFailed:
		c.disconnected()
		if c.session != nil && c.giveUp == nil && !c.shut {
			cl, left := c.client, c.session.maxLease()-c.client.transport.silence()
			c.giveUp = time.AfterFunc(left, func() { c.replace(cl) })
		}
	}
	return over
}

// disconnected notes that nothing is connected. The caller holds c.mu.
func (c *connection) disconnected() {
	if c.connected {
		c.connected = false
		c.up = make(chan struct{})
	}
}

// stopGivingUp keeps the client. The caller holds c.mu.
func (c *connection) stopGivingUp() {
	if c.giveUp != nil {
		c.giveUp.Stop()
		c.giveUp = nil
	}
}

// end says that a session is over.
func (c *connection) end(s *session) {
	if s != nil {
		close(s.over)
		c.ended(s)
	}
}

// replace gives up a client that has heard nothing for too long.
func (c *connection) replace(cl *client) {
	c.mu.Lock()
	if c.client != cl || c.connected || c.shut {
		c.mu.Unlock()
		return
	}
	over := c.session
	c.session, c.giveUp = nil, nil
	old := cl.sever()
	err := c.start()
	if err != nil {
		c.client = nil // the next call tries again
	}
	c.mu.Unlock()
	old.close()
	c.end(over)
	cl.zk.Close()
}

// drop breaks the connection with that number, if it is still in use. The client goes
// on with the next server.
func (c *connection) drop(generation int) {
	c.mu.Lock()
	var t *transport
	if c.generation == generation && c.client != nil {
		t = c.client.transport
	}
	c.mu.Unlock()
	t.close()
}

// close ends the client: with its session, or leaving the session to run out.
func (c *connection) close(leaveSession bool) {
	c.mu.Lock()
	cl := c.client
	c.shut = true
	c.stopGivingUp()
	c.mu.Unlock()
	if cl == nil {
		return
	}
	if leaveSession {
		cl.crash()
	}
	cl.zk.Close()
	cl.crash()
}

// crash ends the connection as a crash would: the server does not hear of it, and the
// session runs out by itself.
func (cl *client) crash() {
	cl.of.mu.Lock()
	t := cl.sever()
	cl.of.mu.Unlock()
	t.close()
}

// sever keeps the client from connecting again. It returns the transport to close. The
// caller holds cl.of.mu.
func (cl *client) sever() *transport {
	cl.severed = true
	return cl.transport
}

func (t *transport) close() {
	if t != nil {
		t.Close()
	}
}

var errSevered = errors.New("zookeeper: the client was given up")

// dial opens a transport for zk.Conn. It closes the one before: zk.Conn leaves it open
// when it was told that the session has expired.
func (cl *client) dial(network, address string, timeout time.Duration) (net.Conn, error) {
	conn, err := net.DialTimeout(network, address, timeout)
	if err != nil {
		return nil, err
	}
	t := newTransport(conn, cl.of.timeout, cl.shook)
	cl.of.mu.Lock()
	old := t // to be closed
	if !cl.severed {
		old, cl.transport = cl.transport, t
	}
	cl.of.mu.Unlock()
	old.close()
	if old == t {
		return nil, errSevered
	}
	return t, nil
}

func (cl *client) shook(h handshake) {
	cl.of.mu.Lock()
	defer cl.of.mu.Unlock()
	cl.handshake = h
}
