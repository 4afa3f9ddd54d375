package fault

import (
	"errors"
	"net"
	"sync"
	"time"
)

// Proxy stands between one worker and one server, or all of them, and knows nothing of what
// they say. It passes everything on until it is told to do worse.
type Proxy struct {
	to  string // empty if each connection says so, in its first line
	l   net.Listener
	all sync.WaitGroup

	mu     sync.Mutex
	conns  map[net.Conn]bool
	ways   [2]way // to the server, to the client
	closed bool
}

// Direction is one way through a proxy.
type Direction int

// The directions.
const (
	ToServer Direction = iota
	ToClient
)

type way struct {
	open  chan struct{} // closed while bytes pass
	delay time.Duration
}

// NewDetour is a proxy to many servers: the first line of each connection is the address
// that it is meant for. See traffic.Via.
func NewDetour() (*Proxy, error) { return NewProxy("") }

// NewProxy listens on a loopback port and passes on to the address.
func NewProxy(to string) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{to: to, l: l, conns: map[net.Conn]bool{}}
	for i := range p.ways {
		p.ways[i].open = make(chan struct{})
		close(p.ways[i].open)
	}
	p.all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			p.all.Go(func() { p.serve(c) })
		}
	})
	return p, nil
}

// Addr is where clients connect.
func (p *Proxy) Addr() string { return p.l.Addr().String() }

// Close ends the proxy and all connections through it.
func (p *Proxy) Close() {
	p.l.Close()
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.Heal()
	p.Cut()
	p.all.Wait()
}

// Cut ends all connections, in the middle of whatever they carry, with a reset.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		if t, ok := c.(*net.TCPConn); ok {
			_ = t.SetLinger(0)
		}
		c.Close()
	}
}

// Silence holds back what goes that way, without an end of any connection, until Heal.
// Then it arrives, as a network repeats what was lost.
func (p *Proxy) Silence(d Direction) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if isClosed(p.ways[d].open) {
		p.ways[d].open = make(chan struct{})
	}
}

// Slow delays what goes both ways, half of d each.
func (p *Proxy) Slow(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.ways {
		p.ways[i].delay = d / 2
	}
}

// Heal ends Silence and Slow.
func (p *Proxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.ways {
		if !isClosed(p.ways[i].open) {
			close(p.ways[i].open)
		}
		p.ways[i].delay = 0
	}
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// keep remembers a connection. It returns false if there is to be none.
func (p *Proxy) keep(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
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

func (p *Proxy) serve(client net.Conn) {
	defer p.drop(client)
	if !p.keep(client) {
		return
	}
	to := p.to
	if to == "" {
		var err error
		if to, err = firstLine(client); err != nil {
			return
		}
	}
	server, err := net.DialTimeout("tcp", to, 5*time.Second)
	if err != nil {
		return
	}
	defer p.drop(server)
	if !p.keep(server) {
		return
	}
	done := make(chan struct{})
	p.all.Go(func() {
		defer close(done)
		p.pass(server, client, ToClient)
	})
	p.pass(client, server, ToServer)
	<-done
}

// firstLine reads a line, and nothing of what follows it.
func firstLine(c net.Conn) (string, error) {
	var line []byte
	for one := make([]byte, 1); len(line) < 300; {
		if _, err := c.Read(one); err != nil {
			return "", err
		}
		if one[0] == '\n' {
			return string(line), nil
		}
		line = append(line, one[0])
	}
	return "", errors.New("a line without an end")
}

// pass copies one way until an end, and then ends both.
func (p *Proxy) pass(from, to net.Conn, d Direction) {
	defer from.Close()
	defer to.Close()
	b := make([]byte, 16<<10)
	for {
		n, err := from.Read(b)
		if n > 0 {
			p.mu.Lock()
			w := p.ways[d]
			p.mu.Unlock()
			if w.delay > 0 {
				time.Sleep(w.delay)
			}
			<-w.open
			if _, err := to.Write(b[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
