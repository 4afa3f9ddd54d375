package zklock

import (
	"bufio"
	"encoding/binary"
	"errors"
	"net"
	"sync"
	"time"
)

// transport is the TCP connection below zk.Conn. It does three things that zk.Conn
// leaves out: it reads from the handshake which session timeout the server granted, it
// bounds how long a silent server is waited for, and it refuses packets that zk.Conn
// would panic on.
type transport struct {
	net.Conn
	patience time.Duration   // the longest wait for one write, and for the handshake
	granted  func(handshake) // called with the handshake before zk.Conn reads it

	// Used by the one reader.
	in    *bufio.Reader
	rest  int // bytes of the current packet that zk.Conn has still to read
	shook bool

	mu    sync.Mutex
	heard time.Time // when the last packet came
}

// handshake is what the server says of a session when a connection begins.
type handshake struct {
	session int64 // 0 if the session has expired
	timeout time.Duration
}

const (
	// The handshake begins with: length, protocol version, timeout in ms, session.
	handshakeSize = 4 + 4 + 4 + 8
	// All other packets begin with: length, request number, transaction, error.
	shortestPacket = 4 + 8 + 4
	longestPacket  = 256 << 20 // far beyond what a server sends
)

var errProtocol = errors.New("zookeeper: the server does not keep to the protocol")

// maxPatience is far longer than a live server takes. A server that is starting may
// stay silent for ever on a connection that it accepts too early (seen with 3.8.0).
const maxPatience = 10 * time.Second

func newTransport(c net.Conn, sessionTimeout time.Duration, granted func(handshake)) *transport {
	patience := min(max(sessionTimeout/6, time.Second), maxPatience)
	return &transport{Conn: c, patience: patience, granted: granted, in: bufio.NewReader(c)}
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
		return err
	}
	size := int(int32(binary.BigEndian.Uint32(head)))
	if size < shortestPacket || size > longestPacket {
		return errProtocol
	}
	if !t.shook {
		if head, err = t.in.Peek(handshakeSize); err != nil {
			return err
		}
		t.shook = true
		t.granted(handshake{
			timeout: time.Duration(int32(binary.BigEndian.Uint32(head[8:]))) * time.Millisecond,
			session: int64(binary.BigEndian.Uint64(head[12:])),
		})
	}
	t.rest = 4 + size
	t.mu.Lock()
	t.heard = time.Now()
	t.mu.Unlock()
	return nil
}

// silence is how long ago the last packet came; 0 before the first.
func (t *transport) silence() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.heard.IsZero() {
		return 0
	}
	return time.Since(t.heard)
}

// SetWriteDeadline shortens the time that zk.Conn gives a write: two thirds of the
// session timeout are longer than a lease lasts after a lost connection.
func (t *transport) SetWriteDeadline(at time.Time) error {
	return t.Conn.SetWriteDeadline(t.soon(at))
}

// SetReadDeadline shortens the time that zk.Conn gives the handshake: ten times two
// thirds of the session timeout.
func (t *transport) SetReadDeadline(at time.Time) error {
	if !t.shook {
		at = t.soon(at)
	}
	return t.Conn.SetReadDeadline(at)
}

func (t *transport) soon(at time.Time) time.Time {
	if most := time.Now().Add(t.patience); !at.IsZero() && at.After(most) {
		return most
	}
	return at
}

// serverList goes round the servers. Names are looked up when they are dialled, not
// once for all. A broken connection is replaced at once; zk.Conn pauses for a second
// only after it has tried all servers in vain.
type serverList struct {
	mu      sync.Mutex
	servers []string
	next    int
	tried   int // since the last success or pause
}

func (l *serverList) Init(servers []string) error { l.servers = servers; return nil }

func (l *serverList) Len() int { return len(l.servers) }

func (l *serverList) Next() (server string, pause bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	server = l.servers[l.next]
	l.next = (l.next + 1) % len(l.servers)
	pause = l.tried >= len(l.servers)
	if pause {
		l.tried = 0
	}
	l.tried++
	return server, pause
}

func (l *serverList) Connected() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tried = 0
}

// noLog drops zk.Conn's messages: what matters comes back as an error.
type noLog struct{}

func (noLog) Printf(string, ...any) {}
