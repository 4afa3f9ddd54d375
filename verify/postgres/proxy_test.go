package postgres_test

import (
	"encoding/binary"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"
)

// proxy stands between clients and the server, and understands just enough of the protocol
// to count round trips and to cut one of them.
type proxy struct {
	to  string
	l   net.Listener
	all sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]bool
	trips int // requests that ask for an answer
	cut   cut
}

// cut says what happens to the next request.
type cut int

const (
	none      cut = iota
	loseIt        // it does not reach the server
	loseReply     // it reaches the server, and its answer is lost
)

// newProxy returns a proxy to the server of a URL, and the URL that goes through it.
func newProxy(t testing.TB, raw string) (*proxy, string) {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{to: u.Host, l: l, conns: make(map[net.Conn]bool)}
	p.all.Go(p.accept)
	t.Cleanup(func() {
		l.Close()
		p.mu.Lock()
		for c := range p.conns {
			c.Close()
		}
		p.mu.Unlock()
		p.all.Wait()
	})
	u.Host = l.Addr().String()
	return p, u.String()
}

func (p *proxy) accept() {
	for {
		client, err := p.l.Accept()
		if err != nil {
			return
		}
		p.all.Go(func() { p.serve(client) })
	}
}

func (p *proxy) keep(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns[c] = true
}

// serve passes on one connection until one side ends it.
func (p *proxy) serve(client net.Conn) {
	defer client.Close()
	p.keep(client)
	server, err := net.DialTimeout("tcp", p.to, 5*time.Second)
	if err != nil {
		return
	}
	defer server.Close()
	p.keep(server)
	answers := make(chan struct{}, 1) // the server is ready for the next request
	var lose sync.Mutex               // held while an answer is to be lost
	p.all.Go(func() {
		defer client.Close()
		for {
			kind, m, err := message(server, true)
			if err != nil {
				return
			}
			if !lose.TryLock() {
				if kind == 'Z' {
					answers <- struct{}{}
					return
				}
				continue
			}
			_, err = client.Write(m)
			lose.Unlock()
			if err != nil {
				return
			}
		}
	})
	first := true
	for {
		kind, m, err := message(client, !first)
		if err != nil {
			return
		}
		do := none
		// Sync ends a request, and so does Query; pgx asks every second who is alive.
		if !first && (kind == 'S' || kind == 'Q') && !strings.Contains(string(m), "-- ping") {
			p.mu.Lock()
			p.trips++
			do, p.cut = p.cut, none
			p.mu.Unlock()
		}
		switch do {
		case loseIt:
			return
		case loseReply:
			lose.Lock()
			if _, err := server.Write(m); err != nil {
				return
			}
			select {
			case <-answers:
			case <-time.After(20 * time.Second):
			}
			return
		}
		if _, err := server.Write(m); err != nil {
			return
		}
		first = false
	}
}

// message reads one message; all but the first of a client begin with their kind.
func message(r io.Reader, typed bool) (kind byte, m []byte, err error) {
	head := make([]byte, 4, 512)
	if typed {
		head = head[:5]
	}
	if _, err := io.ReadFull(r, head); err != nil {
		return 0, nil, err
	}
	if typed {
		kind = head[0]
	}
	n := len(head)
	m = append(head, make([]byte, int(binary.BigEndian.Uint32(head[n-4:]))-4)...)
	_, err = io.ReadFull(r, m[n:])
	return kind, m, err
}

// count returns how many round trips f needs.
func (p *proxy) count(f func()) int {
	p.mu.Lock()
	before := p.trips
	p.mu.Unlock()
	f()
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.trips - before
}

// next says what happens to the next request.
func (p *proxy) next(c cut) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = c
}
