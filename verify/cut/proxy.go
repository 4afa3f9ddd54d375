// Package cut stands between clients and a server, and cuts their connection at the
// n-th request: before the server has all of it, or after it has answered and before the
// client has heard.
//
// A test that runs what it does once for each n sees every moment at which a connection
// can break.
package cut

import (
	"bufio"
	"net"
	"sync"
	"time"
)

// When says at which moment of a request the connection breaks.
type When int

// The moments.
const (
	Before When = iota // the server gets nothing of it
	Half               // the server gets its first half
	After              // the server has applied it, and the client does not hear the answer
)

// All are the moments there are.
func All() []When { return []When{Before, Half, After} }

func (w When) String() string { return [...]string{"before", "half", "after"}[w] }

// Protocol reads messages of a protocol, no more than is needed to count.
type Protocol struct {
	// Request reads the next message of a client; first says that it is the first of its
	// connection. asks says that the server will answer it.
	Request func(r *bufio.Reader, first bool) (message []byte, asks bool, err error)
	// Reply reads the next message of a server; last says that with it an answer is whole.
	Reply func(r *bufio.Reader) (message []byte, last bool, err error)
}

// Proxy is one listener, in front of one server.
type Proxy struct {
	protocol Protocol
	server   string
	listener net.Listener
	group    sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]bool
	seen  int // requests since Arm
	at    int // the request at which to cut; 0: none
	when  When
	cut   func() // called once the connection is cut
	fired bool
}

// New listens on a loopback port for the server at an address. Close ends it.
func New(server string, p Protocol) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	x := &Proxy{protocol: p, server: server, listener: l, conns: map[net.Conn]bool{}}
	x.group.Go(x.accept)
	return x, nil
}

// Addr is where it listens.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Arm begins to count requests, of all connections together, and cuts the connection of
// the n-th; then it calls f, unless that is nil. All later requests pass.
func (p *Proxy) Arm(n int, w When, f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen, p.at, p.when, p.cut, p.fired = 0, n, w, f, false
}

// Fired reports whether the n-th request has come.
func (p *Proxy) Fired() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fired
}

// Close ends all connections, and waits for them.
func (p *Proxy) Close() {
	p.listener.Close()
	p.mu.Lock()
	for c := range p.conns {
		c.Close()
	}
	p.conns = nil
	p.mu.Unlock()
	p.group.Wait()
}

func (p *Proxy) accept() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.group.Go(func() { p.serve(c) })
	}
}

// keep notes c, so that Close ends it.
func (p *Proxy) keep(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conns == nil {
		c.Close()
		return false
	}
	p.conns[c] = true
	return true
}

func (p *Proxy) drop(c net.Conn) {
	c.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

// count counts a request, and says whether it is the one.
func (p *Proxy) count() (w When, it bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen++
	if p.at == 0 || p.seen != p.at {
		return 0, false
	}
	p.fired = true
	return p.when, true
}

func (p *Proxy) serve(client net.Conn) {
	if !p.keep(client) {
		return
	}
	defer p.drop(client)
	server, err := net.DialTimeout("tcp", p.server, 5*time.Second)
	if err != nil || !p.keep(server) {
		return
	}
	defer p.drop(server)
	x := &link{client: client, server: server, lose: -1, whole: make(chan struct{})}
	p.group.Go(func() { x.replies(p.protocol) })
	r := bufio.NewReaderSize(client, 64<<10)
	for first := true; ; first = false {
		m, asks, err := p.protocol.Request(r, first)
		if err != nil {
			return
		}
		w, it := Before, false
		if asks {
			w, it = p.count()
		}
		if !it {
			x.asked(asks)
			if _, err := server.Write(m); err != nil {
				return
			}
			continue
		}
		switch w {
		case Half:
			_, _ = server.Write(m[:len(m)/2])
		case After:
			x.loseNext()
			if _, err := server.Write(m); err == nil {
				select {
				case <-x.whole:
				case <-time.After(10 * time.Second): // the server hangs; the test will say so
				}
			}
		}
		p.drop(client)
		p.drop(server)
		p.mu.Lock()
		f := p.cut
		p.cut = nil
		p.mu.Unlock()
		if f != nil {
			f()
		}
		return
	}
}

// link is one connection through the proxy.
type link struct {
	client, server net.Conn

	mu     sync.Mutex
	open   int // requests that are not answered
	lose   int // the answers before the one that is lost; -1: none is
	whole  chan struct{}
	closed bool
}

func (x *link) asked(asks bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if asks {
		x.open++
	}
}

// loseNext lets the answers pass that are still to come, and not the next one.
func (x *link) loseNext() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.lose = x.open
}

// replies passes on what the server says.
func (x *link) replies(p Protocol) {
	defer x.client.Close()
	defer x.end()
	r := bufio.NewReaderSize(x.server, 64<<10)
	for {
		m, last, err := p.Reply(r)
		if err != nil {
			return
		}
		x.mu.Lock()
		lost := x.lose == 0
		if last && !lost {
			x.open = max(x.open-1, 0) // a greeting answers nobody
			if x.lose > 0 {
				x.lose--
			}
		}
		x.mu.Unlock()
		switch {
		case lost && last:
			return
		case lost:
		default:
			if _, err := x.client.Write(m); err != nil {
				return
			}
		}
	}
}

// end says that no more answers come.
func (x *link) end() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.closed {
		x.closed = true
		close(x.whole)
	}
}
