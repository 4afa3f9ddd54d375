package faultproxy

import (
	"bufio"
	"net"
	"sync"
	"time"
)

// Request is a message of a client; without a Framer, whatever is read at once.
type Request struct {
	First bool   // of its connection
	Asks  bool   // the server answers it
	Burst int    // its place among those that were read at once, from 1
	Data  []byte // as it was sent

	// AfterCut may be set by the function of Handle. It runs once the action has broken the
	// connection.
	AfterCut func()
}

// Action is what becomes of a request.
type Action int

// The actions.
const (
	Pass          Action = iota
	DropRequest          // The connection breaks, and the server gets nothing of it.
	HalveRequest         // The connection breaks, and the server gets the first half.
	DropAnswer           // The connection breaks once the server has answered. The client hears earlier answers only.
	DiscardAnswer        // The server gets the request. The client hears nothing on this connection from then on.
	HoldAnswer           // The server gets the request. The client hears nothing on this connection until Resume.
	HoldRequest          // The server gets the request at Resume.
	LateRequest          // The client's connection is reset. The server gets the request at Resume.
)

// answerTimeout bounds the wait for an answer that is to be lost. A server that hangs for as
// long fails the test anyway.
const answerTimeout = 20 * time.Second

// conn is one connection through the proxy.
type conn struct {
	proxy          *Proxy
	client, server *late
	ended          chan struct{} // closed when no more answers pass

	mu      sync.Mutex
	pending []Action // of the requests without an answer, in their order
	discard bool
	held    <-chan struct{} // nil: answers are not held back
}

// passRequests passes on what the client says until one side ends the connection.
func (c *conn) passRequests() {
	defer c.server.flush()
	r := bufio.NewReaderSize(c.client, 64<<10)
	burst := 0
	for first := true; ; first = false {
		if r.Buffered() == 0 {
			burst = 0
		}
		burst++
		q := Request{First: first, Burst: burst}
		var err error
		if q.Data, q.Asks, err = c.proxy.framer.Request(r, first); err != nil {
			return
		}
		action := c.judge(&q)
		if !c.prepare(action, q.Asks) {
			if action == HalveRequest {
				_, _ = c.server.Write(q.Data[:len(q.Data)/2])
			}
			c.breakOff(q.AfterCut)
			return
		}
		c.hold(action)
		if !c.proxy.await(ToServer) {
			continue
		}
		_, err = c.server.Write(q.Data)
		cuts := action == DropAnswer || action == LateRequest
		if err != nil && !cuts {
			return
		}
		if cuts {
			select {
			case <-c.ended:
			case <-time.After(answerTimeout):
			case <-c.proxy.ctx.Done():
			}
			c.breakOff(q.AfterCut)
			return
		}
	}
}

// judge is what becomes of a request.
func (c *conn) judge(q *Request) Action {
	if aside := c.proxy.framer.Aside; q.First && aside != nil && aside(q.Data) {
		return Pass
	}
	return c.proxy.judge(q)
}

// prepare has the answers treated as the action demands. It returns false if the server is
// not to get the request.
func (c *conn) prepare(a Action, asks bool) bool {
	resume := c.proxy.nextResume()
	c.mu.Lock()
	defer c.mu.Unlock()
	switch a {
	case DropRequest, HalveRequest:
		return false
	case DiscardAnswer:
		c.discard = true
	case HoldAnswer:
		c.held = resume
	case LateRequest:
		a, c.discard = DropAnswer, true
	}
	if asks || a == DropAnswer {
		c.pending = append(c.pending, a)
	}
	return true
}

// hold waits until the server is to get a request. LateRequest ends the client's connection first.
func (c *conn) hold(a Action) {
	if a != HoldRequest && a != LateRequest {
		return
	}
	resume := c.proxy.nextResume()
	if a == LateRequest {
		_ = c.client.Conn.(*net.TCPConn).SetLinger(0)
		c.proxy.drop(c.client.Conn)
	}
	wait(c.proxy, resume)
}

func (c *conn) breakOff(then func()) {
	c.proxy.drop(c.client.Conn)
	c.proxy.drop(c.server.Conn)
	if then != nil {
		then()
	}
}

// passAnswers passes on what the server says.
func (c *conn) passAnswers() {
	defer c.client.Close()
	defer c.server.Close()
	defer close(c.ended)
	defer c.client.flush()
	r := bufio.NewReaderSize(c.server, 64<<10)
	for {
		m, last, err := c.proxy.framer.Answer(r)
		if err != nil {
			return
		}
		lost, discard, held := c.count(last)
		if held != nil {
			wait(c.proxy, held)
		}
		switch {
		case lost && last:
			return
		case lost, !c.proxy.await(ToClient), discard:
			continue
		}
		if _, err := c.client.Write(m); err != nil && !c.deaf() {
			return
		}
	}
}

// deaf reports whether the client hears nothing more on this connection.
func (c *conn) deaf() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.discard
}

// count counts an answer, and says what becomes of it.
func (c *conn) count(last bool) (lost, discard bool, held <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	answers := len(c.pending) > 0 // a greeting answers no request
	lost = answers && c.pending[0] == DropAnswer
	if answers && last && !lost {
		c.pending = c.pending[1:]
	}
	return lost, c.discard, c.held
}
