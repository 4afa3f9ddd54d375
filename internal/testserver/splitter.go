package testserver

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"sync/atomic"
)

// Splitter is a pooler of PostgreSQL that sends reads to a standby, as Pgpool, pgcat and ProxySQL
// do. A client has a connection to each server. It passes no notifications on.
type Splitter struct {
	primary, standby string
	reads            func(statement string) bool // goes to the standby
	listener         net.Listener
	all              sync.WaitGroup

	fromStandby atomic.Int64
}

// SplitReads starts a Splitter, which ends with the test. Statements for which reads returns true go to
// the standby.
func SplitReads(tb TB, primary, standby *Server, reads func(statement string) bool) *Splitter {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatalf("%v", err)
	}
	p := &Splitter{primary: primary.Addr(), standby: standby.Addr(), reads: reads, listener: l}
	p.all.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			p.all.Go(func() {
				defer client.Close()
				_ = p.serve(client) // it ends with the connection
			})
		}
	})
	tb.Cleanup(func() {
		l.Close()
		p.all.Wait()
	})
	return p
}

// Addr is where the Splitter listens.
func (p *Splitter) Addr() string { return p.listener.Addr().String() }

// FromStandby is how many statements the standby has answered.
func (p *Splitter) FromStandby() int64 { return p.fromStandby.Load() }

// serve passes requests on until a connection ends. A request ends with Sync, or is a simple query.
func (p *Splitter) serve(client net.Conn) error {
	var head [4]byte
	if _, err := io.ReadFull(client, head[:]); err != nil {
		return err
	}
	startup := append(head[:], make([]byte, binary.BigEndian.Uint32(head[:])-4)...)
	if _, err := io.ReadFull(client, startup[4:]); err != nil {
		return err
	}
	if len(startup) == 16 { // CancelRequest
		return nil
	}
	servers := [2]net.Conn{}
	for i, addr := range []string{p.primary, p.standby} {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			return err
		}
		defer conn.Close()
		if _, err := conn.Write(startup); err != nil {
			return err
		}
		to := io.Writer(client)
		if i == 1 {
			to = io.Discard
		}
		if err := relay(to, conn); err != nil {
			return err
		}
		servers[i] = conn
	}
	for {
		request, text, err := readRequest(client)
		if err != nil {
			return err
		}
		server := servers[0]
		if p.reads(text) {
			server = servers[1]
			p.fromStandby.Add(1)
		}
		if _, err := server.Write(request); err != nil {
			return err
		}
		if err := relay(client, server); err != nil {
			return err
		}
	}
}

// message reads a message with its type and length.
func message(from io.Reader) (kind byte, whole []byte, err error) {
	head := make([]byte, 5)
	if _, err := io.ReadFull(from, head); err != nil {
		return 0, nil, err
	}
	whole = append(head, make([]byte, binary.BigEndian.Uint32(head[1:])-4)...)
	_, err = io.ReadFull(from, whole[5:])
	return head[0], whole, err
}

// readRequest reads messages up to the end of a request, and the text of its statement.
func readRequest(client io.Reader) (request []byte, text string, err error) {
	for {
		kind, whole, err := message(client)
		if err != nil {
			return nil, "", err
		}
		request = append(request, whole...)
		switch kind {
		case 'Q':
			return request, string(bytes.TrimRight(whole[5:], "\x00")), nil
		case 'P':
			_, rest, _ := bytes.Cut(whole[5:], []byte{0})
			statement, _, _ := bytes.Cut(rest, []byte{0})
			text = string(statement)
		case 'S':
			return request, text, nil
		case 'X':
			return nil, "", io.EOF
		}
	}
}

// relay passes messages on, up to ReadyForQuery.
func relay(to io.Writer, from io.Reader) error {
	for {
		kind, whole, err := message(from)
		if err != nil {
			return err
		}
		if _, err := to.Write(whole); err != nil {
			return err
		}
		if kind == 'Z' {
			return nil
		}
	}
}
