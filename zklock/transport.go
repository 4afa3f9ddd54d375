package zklock

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"net"
	"time"
)

// transport is the TCP connection below zk.Conn. It refuses packets on which zk.Conn would
// panic, reads which session timeout was granted, and shows zk.Conn a haste-th of it.
type transport struct {
	net.Conn
	session *session

	asked bool // zk.Conn has asked for the session

	// Used by the one reader.
	in      *bufio.Reader
	rest    int           // bytes of the current packet that zk.Conn has still to read
	granted time.Duration // the session timeout; 0 before the handshake
}

// haste makes zk.Conn ping twelve times in a session timeout, and not three times. The leader
// counts a session's time from when its follower last passed on that it had heard of it, at
// each half tick. With a gap of a third between pings, and a follower that is cut off right
// after it answered, the session would end before a lease of two thirds.
const haste = 4

const (
	// The handshake begins with: length, protocol version, timeout in ms, session.
	handshakeSize = 4 + 4 + 4 + 8
	// All other packets begin with: length, request number, transaction, error.
	shortestPacket = 4 + 8 + 4
	longestPacket  = 256 << 20 // far beyond what a server sends
	// The request for a session begins with: length, protocol version, last transaction.
	askedTimeout = 4 + 4 + 8
)

var errProtocol = errors.New("zookeeper: the server does not keep to the protocol")

// maxPatience is the longest wait for the handshake. A server that is starting may stay
// silent forever on a connection that it accepts too early (seen with 3.8.0).
const maxPatience = 10 * time.Second

func newTransport(tcp net.Conn, s *session) *transport {
	return &transport{Conn: tcp, session: s, in: bufio.NewReader(tcp)}
}

// Write passes on what zk.Conn sends, each request in one piece.
func (t *transport) Write(b []byte) (int, error) {
	if !t.asked && len(b) >= askedTimeout+4 {
		t.asked = true
		b = bytes.Clone(b)
		binary.BigEndian.PutUint32(b[askedTimeout:], uint32(t.session.b.timeout.Milliseconds()))
	}
	n, err := t.Conn.Write(b)
	return n, t.met(err)
}

// met notes that a connection broke before the server had said anything.
func (t *transport) met(err error) error {
	if err != nil && t.granted == 0 {
		t.session.b.crowd.meet(err)
	}
	return err
}

// Read passes packets on to zk.Conn, which reads in its own portions.
func (t *transport) Read(b []byte) (int, error) {
	if t.rest == 0 {
		if err := t.beginPacket(); err != nil {
			return 0, err
		}
	}
	n, err := t.in.Read(b[:min(len(b), t.rest)])
	t.rest -= n
	return n, err
}

func (t *transport) beginPacket() error {
	head, err := t.in.Peek(4)
	if err != nil {
		return t.met(err)
	}
	size := int(int32(binary.BigEndian.Uint32(head)))
	if size < shortestPacket || size > longestPacket {
		return errProtocol
	}
	id := int64(0)
	if t.granted == 0 {
		if head, err = t.in.Peek(handshakeSize); err != nil {
			return err
		}
		timeout := max(int32(binary.BigEndian.Uint32(head[8:])), 1)
		t.granted = time.Duration(timeout) * time.Millisecond
		id = int64(binary.BigEndian.Uint64(head[12:]))
		binary.BigEndian.PutUint32(head[8:], uint32(timeout/haste))
	}
	t.session.hears(id, t.granted)
	t.rest = 4 + size
	return nil
}

// SetReadDeadline leaves a server that is silent for a quarter of the timeout, or for a second
// if that is less than a third: another one must be found while leases last.
func (t *transport) SetReadDeadline(at time.Time) error {
	timeout := cmp.Or(t.granted, t.session.b.timeout)
	patience := max(timeout/4, min(timeout/3, time.Second))
	if t.granted == 0 {
		patience = min(max(patience, time.Second), maxPatience)
	}
	if !at.IsZero() {
		at = time.Now().Add(patience)
	}
	return t.Conn.SetReadDeadline(at)
}

// serverList goes round the servers. Names are looked up when they are dialled, not
// once for all. A broken connection is replaced at once; zk.Conn pauses for a second
// only after it has tried all servers in vain. One goroutine of zk.Conn uses it.
type serverList struct {
	servers []string
	next    int
	tried   int // since the last success or pause
}

func (l *serverList) Init(servers []string) error { l.servers = servers; return nil }

func (l *serverList) Len() int { return len(l.servers) }

func (l *serverList) Connected() { l.tried = 0 }

func (l *serverList) Next() (server string, pause bool) {
	server = l.servers[l.next]
	l.next = (l.next + 1) % len(l.servers)
	pause = l.tried >= len(l.servers)
	if pause {
		l.tried = 0
	}
	l.tried++
	return server, pause
}
