package redislock

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/redislock/internal/transport"
	"github.com/redis/go-redis/v9"
)

// proxy stands between a client and a server, reads the commands that pass, and
// breaks connections on order.
type proxy struct {
	t        testing.TB
	listener net.Listener
	server   string

	mu    sync.Mutex
	seen  []string // names of the commands that passed
	burst int      // the most that came in one piece
	judge func(name string, args []string) fate
	conns map[net.Conn]bool
	gate  chan struct{} // closed by letGo
	group sync.WaitGroup
}

// fate is what becomes of a command.
type fate int

const (
	pass       fate = iota
	dropIt          // the connection breaks before the server gets it
	loseReply       // the server gets it, and the connection breaks before the client hears
	swallowAll      // the server gets it, and nothing is heard from then on
	holdReply       // the server gets it, and the client hears when letGo is called
	holdIt          // the server gets it when letGo is called
)

func newProxy(t testing.TB, s *testserver.Server) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{t: t, listener: l, server: s.Addr(), conns: make(map[net.Conn]bool), gate: make(chan struct{})}
	p.group.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			p.group.Go(func() { p.serve(c) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		p.letGo()
		p.mu.Lock()
		for c := range p.conns {
			c.Close()
		}
		p.mu.Unlock()
		p.group.Wait()
	})
	return p
}

// client opens a client that goes through the proxy.
func (p *proxy) client(change ...func(*redis.Options)) *redis.Client {
	o := &redis.Options{Addr: p.listener.Addr().String()}
	for _, f := range change {
		f(o)
	}
	c := redis.NewClient(o)
	p.t.Cleanup(func() { c.Close() })
	return c
}

// rule sets who judges commands from now on, and forgets what was seen.
func (p *proxy) rule(judge func(name string, args []string) fate) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.judge, p.seen, p.burst = judge, nil, 0
}

// scripts returns the commands seen that run scripts, and all.
func (p *proxy) scripts() (scripts, all []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, name := range p.seen {
		if strings.HasPrefix(name, "eval") {
			scripts = append(scripts, name)
		}
	}
	return scripts, append(all, p.seen...)
}

// letGo lets commands and replies pass that were held, and all later ones.
func (p *proxy) letGo() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.gate:
	default:
		close(p.gate)
	}
}

// most returns how many commands have come in one piece.
func (p *proxy) most() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.burst
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

func (p *proxy) serve(client net.Conn) {
	p.track(client, true)
	defer p.track(client, false)
	server, err := net.Dial("tcp", p.server)
	if err != nil {
		return
	}
	p.track(server, true)
	defer p.track(server, false)

	var mu sync.Mutex
	mute, lost, held := false, false, false // what to do with what the server says
	p.group.Go(func() {
		defer client.Close()
		b := make([]byte, 64<<10)
		for {
			n, err := server.Read(b)
			if err != nil {
				return
			}
			mu.Lock()
			quiet, break_, wait := mute, lost, held
			mu.Unlock()
			if wait {
				<-p.gate
			}
			switch {
			case break_:
				return
			case quiet:
				continue
			}
			if _, err := client.Write(b[:n]); err != nil {
				return
			}
		}
	})
	r := bufio.NewReaderSize(client, 64<<10)
	burst := 0
	for {
		if r.Buffered() == 0 {
			burst = 0
		}
		raw, args, err := readCommand(r)
		if err != nil {
			return
		}
		name := strings.ToLower(args[0])
		p.mu.Lock()
		p.seen = append(p.seen, name)
		burst++
		p.burst = max(p.burst, burst)
		f := pass
		if p.judge != nil {
			f = p.judge(name, args)
		}
		p.mu.Unlock()
		mu.Lock()
		switch f {
		case dropIt:
			mu.Unlock()
			return
		case loseReply:
			lost = true
		case swallowAll:
			mute = true
		case holdReply:
			held = true
		}
		mu.Unlock()
		if f == holdIt {
			<-p.gate
		}
		if _, err := server.Write(raw); err != nil {
			return
		}
	}
}

// readCommand reads one command as clients send it.
func readCommand(r *bufio.Reader) (raw []byte, args []string, err error) {
	line := func() (int, error) {
		s, err := r.ReadString('\n')
		if err != nil {
			return 0, err
		}
		raw = append(raw, s...)
		return strconv.Atoi(strings.TrimSpace(s[1:]))
	}
	n, err := line()
	if err != nil {
		return nil, nil, err
	}
	for range n {
		size, err := line()
		if err != nil {
			return nil, nil, err
		}
		b := make([]byte, size+2)
		if _, err := io.ReadFull(r, b); err != nil {
			return nil, nil, err
		}
		raw = append(raw, b...)
		args = append(args, string(b[:size]))
	}
	if len(args) == 0 {
		return nil, nil, fmt.Errorf("an empty command")
	}
	return raw, args, nil
}

// isScript reports whether a command runs the script.
func isScript(s *transport.Script, args []string) bool {
	return len(args) > 1 && (args[1] == s.SHA() || args[1] == s.Source())
}
