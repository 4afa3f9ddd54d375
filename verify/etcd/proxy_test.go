package etcd_test

import (
	"net"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock/internal/testserver"
)

// proxy stands between a client and a server, and breaks their connections on order.
type proxy struct {
	listener net.Listener
	target   string

	mu    sync.Mutex
	conns map[net.Conn]bool
	mode  mode
	done  sync.WaitGroup
}

type mode int

const (
	passing mode = iota
	mute         // the server hears, the client does not
	deaf         // connections end at once
	hung         // connections stay, and nothing moves
)

func newProxy(t testing.TB, s *testserver.Server) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: l, target: s.Addr(), conns: make(map[net.Conn]bool)}
	p.done.Go(p.accept)
	t.Cleanup(func() {
		l.Close()
		p.set(deaf)
		p.done.Wait()
	})
	return p
}

func (p *proxy) addr() string { return p.listener.Addr().String() }

// set changes what happens from now on. Connections end with what was before: no
// byte of an answer that was withheld comes later.
func (p *proxy) set(m mode) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if m != mute && m != hung {
		for c := range p.conns {
			c.Close()
		}
	}
	p.mode = m
}

func (p *proxy) now() mode {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mode
}

func (p *proxy) accept() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return
		}
		s, err := net.Dial("tcp", p.target)
		if err != nil || !p.add(c, s) {
			c.Close()
			if s != nil {
				s.Close()
			}
			continue
		}
		p.done.Go(func() { p.pump(s, c, false) })
		p.done.Go(func() { p.pump(c, s, true) })
	}
}

// add counts a pair of connections in, unless none may be.
func (p *proxy) add(c, s net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mode == deaf {
		return false
	}
	p.conns[c], p.conns[s] = true, true
	return true
}

func (p *proxy) pump(to, from net.Conn, answers bool) {
	defer func() {
		to.Close()
		from.Close()
		p.mu.Lock()
		delete(p.conns, from)
		p.mu.Unlock()
	}()
	buffer := make([]byte, 16<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		if answers && p.now() == mute {
			continue
		}
		for p.now() == hung {
			sleep(time.Millisecond)
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}
