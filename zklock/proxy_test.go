package zklock

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/fencelock/fencelock/internal/testserver"
)

// Requests, by the numbers that ZooKeeper gives them.
const (
	opGetData         = 4
	opPing            = 11
	opChildren        = 12 // getChildren2
	opMulti           = 14
	opCreateContainer = 19
	opSetAuth         = 100
)

// fate is what becomes of a request.
type fate int

const (
	pass      fate = iota
	dropIt         // the connection breaks before the server gets it
	loseReply      // the server applies it, and the connection breaks before the client hears
)

// proxy stands between a client and a server, reads the requests that pass, and
// breaks connections on order.
type proxy struct {
	t        testing.TB
	listener net.Listener
	server   string

	mu     sync.Mutex
	seen   []int32 // requests that passed, without pings
	judge  func(op int32, body []byte) fate
	frozen bool // connections stay open, and nothing passes
	muted  bool // connections stay open, and the server's answers do not pass
	unmet  int  // clients that connected meanwhile, whom nobody will answer
	shut   bool // new connections are refused, and old ones broken
	conns  map[net.Conn]bool
	begun  int   // connections
	zxid   int64 // the last that the newest client says it has seen
	groups sync.WaitGroup
}

func newProxy(t testing.TB, s *testserver.Server) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{t: t, listener: l, server: s.Addr(), conns: make(map[net.Conn]bool)}
	p.groups.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			p.mu.Lock()
			shut := p.shut
			p.begun++
			p.mu.Unlock()
			if shut {
				c.Close()
				continue
			}
			p.groups.Go(func() { p.serve(c) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		p.cut()
		p.groups.Wait()
	})
	return p
}

func (p *proxy) addr() string { return p.listener.Addr().String() }

// rule sets who judges requests from now on, and forgets what was seen.
func (p *proxy) rule(judge func(op int32, body []byte) fate) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.judge, p.seen = judge, nil
}

// once judges the first request of that kind.
func once(op int32, f fate) func(int32, []byte) fate {
	done := false
	return func(o int32, _ []byte) fate {
		if done || o != op {
			return pass
		}
		done = true
		return f
	}
}

// onceLeft judges the first request by which a claim leaves its line.
func onceLeft(f fate) func(int32, []byte) fate {
	done := false
	return func(o int32, _ []byte) fate {
		if done || o != opMulti {
			return pass
		}
		done = true
		return f
	}
}

// requests returns what was seen since the last rule.
func (p *proxy) requests() []int32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]int32(nil), p.seen...)
}

// cut breaks all connections.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.Close()
	}
}

// close refuses connections until open is called.
func (p *proxy) close() {
	p.mu.Lock()
	p.shut = true
	p.mu.Unlock()
	p.cut()
}

func (p *proxy) open() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shut = false
}

func (p *proxy) track(c net.Conn, here bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if here {
		p.conns[c] = true
	} else {
		delete(p.conns, c)
		c.Close()
	}
}

// packet reads one packet with its length.
func packet(r io.Reader) ([]byte, error) {
	head := make([]byte, 4)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, err
	}
	n := int(binary.BigEndian.Uint32(head))
	if n > 4<<20 {
		return nil, errors.New("this is not ZooKeeper's protocol") // somebody took the port for another's
	}
	b := make([]byte, 4+n)
	copy(b, head)
	_, err := io.ReadFull(r, b[4:])
	return b, err
}

func (p *proxy) serve(client net.Conn) {
	p.track(client, true)
	defer p.track(client, false)
	if p.ignores() {
		_, _ = io.Copy(io.Discard, client)
		return
	}
	server, err := net.Dial("tcp", p.server)
	if err != nil {
		return
	}
	p.track(server, true)
	defer p.track(server, false)

	var mu sync.Mutex
	muted := int32(0) // the xid whose reply is to be lost
	p.groups.Go(func() {
		defer client.Close()
		for {
			b, err := packet(server)
			if err != nil {
				return
			}
			mu.Lock()
			lose := muted != 0 && int32(binary.BigEndian.Uint32(b[4:])) == muted
			mu.Unlock()
			if lose {
				return
			}
			if p.isFrozen() || p.isMuted() {
				continue
			}
			if _, err := client.Write(b); err != nil {
				return
			}
		}
	})
	for first := true; ; first = false {
		b, err := packet(client)
		if err != nil {
			return
		}
		f := pass
		if first {
			p.mu.Lock()
			p.zxid = int64(binary.BigEndian.Uint64(b[8:]))
			p.mu.Unlock()
		} else {
			xid, op := int32(binary.BigEndian.Uint32(b[4:])), int32(binary.BigEndian.Uint32(b[8:]))
			p.mu.Lock()
			if op != opPing {
				p.seen = append(p.seen, op)
			}
			if p.judge != nil {
				f = p.judge(op, b[12:])
			}
			p.mu.Unlock()
			switch f {
			case dropIt:
				return
			case loseReply:
				mu.Lock()
				muted = xid
				mu.Unlock()
			}
		}
		if p.isFrozen() {
			continue
		}
		if _, err := server.Write(b); err != nil {
			return
		}
	}
}

func (p *proxy) isFrozen() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.frozen
}

func (p *proxy) isMuted() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.muted
}

// mute lets none of the server's answers pass any more; requests still do.
func (p *proxy) mute() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.muted = true
}

// ignores is isFrozen for a client that connects.
func (p *proxy) ignores() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.frozen {
		p.unmet++
	}
	return p.frozen
}

// freeze lets nothing pass any more, and breaks nothing.
func (p *proxy) freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frozen = true
}

// used reports whether a connection is open.
func (p *proxy) used() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns) > 0
}
