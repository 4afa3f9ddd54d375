package mariadb_test

import (
	"bufio"
	"io"
	"net"
	"sync"
	"testing"
)

// proxy stands between clients and the server, and understands as much of the protocol
// as it takes to count commands and to cut a connection at one of them. A command is one
// round trip: its client sends nothing more before the answer.
type proxy struct {
	listener net.Listener
	server   string
	wg       sync.WaitGroup

	mu       sync.Mutex
	conns    map[net.Conn]bool
	commands []string // those that were forwarded
	// cut says what becomes of a command, by its text; nil forwards all.
	cut func(command string) fate
}

// fate is what becomes of a command.
type fate int

const (
	forward    fate = iota
	dropIt          // the connection is cut before the server has seen it
	dropAnswer      // the connection is cut when the server has answered, and nobody sees that
)

// newProxy starts a proxy that ends with the test.
func newProxy(t testing.TB, server string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: l, server: server, conns: make(map[net.Conn]bool)}
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		l.Close()
		p.mu.Lock()
		for c := range p.conns {
			c.Close()
		}
		p.mu.Unlock()
		p.wg.Wait()
	})
	return p
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.server)
		if err != nil {
			client.Close()
			continue
		}
		p.mu.Lock()
		p.conns[client], p.conns[server] = true, true
		p.mu.Unlock()
		answers := make(chan struct{}, 1) // a byte has come back for a command that is to lose it
		var doomed sync.Mutex             // held while answers go to nobody
		lost := false
		p.wg.Go(func() {
			defer client.Close()
			defer server.Close()
			buf := make([]byte, 32<<10)
			for {
				n, err := server.Read(buf)
				doomed.Lock()
				gone := lost
				doomed.Unlock()
				if err != nil {
					return
				}
				if gone {
					answers <- struct{}{}
					return
				}
				if _, err := client.Write(buf[:n]); err != nil {
					return
				}
			}
		})
		p.wg.Go(func() {
			defer client.Close()
			defer server.Close()
			r := bufio.NewReader(client)
			for {
				packet, err := readPacket(r)
				if err != nil {
					return
				}
				// A command begins a sequence of packets; the client's part of the
				// greeting does not.
				if packet[3] == 0 && len(packet) > 4 {
					switch p.judge(string(packet[4:])) {
					case dropIt:
						return
					case dropAnswer:
						doomed.Lock()
						lost = true
						doomed.Unlock()
						if _, err := server.Write(packet); err == nil {
							<-answers
						}
						return
					}
				}
				if _, err := server.Write(packet); err != nil {
					return
				}
			}
		})
	}
}

// judge counts a command and says what becomes of it.
func (p *proxy) judge(command string) fate {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.commands = append(p.commands, command)
	if p.cut == nil {
		return forward
	}
	return p.cut(command)
}

// take returns the commands since it was last called.
func (p *proxy) take() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.commands
	p.commands = nil
	return all
}

func (p *proxy) set(cut func(command string) fate) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = cut
}

// readPacket reads three bytes of length, the number in its sequence, and what follows.
func readPacket(r *bufio.Reader) ([]byte, error) {
	head, err := r.Peek(4)
	if err != nil {
		return nil, err
	}
	packet := make([]byte, 4+(int(head[0])|int(head[1])<<8|int(head[2])<<16))
	_, err = io.ReadFull(r, packet)
	return packet, err
}
