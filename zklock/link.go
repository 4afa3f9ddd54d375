package zklock

import (
	"encoding/binary"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
)

// client is what the recipe needs of a *zk.Conn.
type client interface {
	AddAuth(scheme string, auth []byte) error
	Children(path string) ([]string, *zk.Stat, error)
	Create(path string, data []byte, flags int32, acl []zk.ACL) (string, error)
	CreateContainer(path string, data []byte, flags int32, acl []zk.ACL) (string, error)
	Delete(path string, version int32) error
	Exists(path string) (bool, *zk.Stat, error)
	Get(path string) ([]byte, *zk.Stat, error)
	GetW(path string) ([]byte, *zk.Stat, <-chan zk.Event, error)
	Multi(ops ...any) ([]zk.MultiResponse, error)
	Set(path string, data []byte, version int32) (*zk.Stat, error)
	Sync(path string) (string, error)
	Close()
}

var _ client = (*zk.Conn)(nil)

// link is the one connection of a Backend: over many TCP connections, and over many
// sessions, for zk's client silently begins a new one when the last has expired.
//
// The client tells nobody which timeout the server has granted, so the link reads
// it from the wire; and it has no way to break off without ending the session,
// so the link cuts the wire.
type link struct {
	servers []string
	want    time.Duration

	mu      sync.Mutex
	conn    client
	wire    net.Conn
	cut     bool
	hello   hello         // of the newest handshake
	session *session      // the current one, or nil
	up      chan struct{} // closed while session is connected
	gen     int           // counts connections
	lost    func(*session)
}

// hello is what the server says of a session when a connection begins.
type hello struct {
	id      int64
	timeout time.Duration
}

func (l *link) init(servers []string, want time.Duration, lost func(*session)) {
	l.servers, l.want, l.lost = servers, want, lost
	l.up = make(chan struct{})
}

// open starts the client if it does not run. It waits for nobody.
func (l *link) open() (client, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn != nil {
		return l.conn, nil
	}
	conn, _, err := zk.Connect(l.servers, l.want,
		zk.WithDialer(l.dial),
		zk.WithHostProvider(&hosts{}),
		zk.WithLogger(silence{}),
		zk.WithLogInfo(false),
		zk.WithEventCallback(l.event),
	)
	if err != nil {
		return nil, err
	}
	l.conn = conn
	return conn, nil
}

// event follows the session. The client calls it from its own goroutine before it
// sends anything in the new state, so it must not wait.
func (l *link) event(e zk.Event) {
	if e.Type != zk.EventSession {
		return
	}
	l.mu.Lock()
	var over *session
	switch e.State {
	case zk.StateHasSession:
		if l.session == nil || l.session.id != l.hello.id {
			over, l.session = l.session, newSession(l.hello)
		}
		l.gen++
		select {
		case <-l.up:
		default:
			close(l.up)
		}
	case zk.StateExpired:
		over, l.session = l.session, nil
		l.down()
	case zk.StateDisconnected, zk.StateConnecting, zk.StateAuthFailed:
		l.down()
	}
	l.mu.Unlock()
	if over != nil {
		close(over.over)
		l.lost(over)
	}
}

// down says that nothing is connected. l.mu is held.
func (l *link) down() {
	select {
	case <-l.up:
		l.up = make(chan struct{})
	default:
	}
}

// state returns the session if it is connected, and otherwise what is closed when
// one is.
func (l *link) state() (s *session, gen int, up <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.up:
		return l.session, l.gen, l.up
	default:
		return nil, l.gen, l.up
	}
}

// sever ends the connection as a crash would: the server does not hear of it, and
// the session runs out by itself.
func (l *link) sever() {
	l.mu.Lock()
	l.cut = true
	wire := l.wire
	l.mu.Unlock()
	if wire != nil {
		wire.Close()
	}
}

// close ends the client: with its session, or leaving that to run out.
func (l *link) close(leaveSession bool) {
	if leaveSession {
		l.sever()
	}
	l.mu.Lock()
	conn := l.conn
	l.mu.Unlock()
	if conn != nil {
		conn.Close()
	}
}

var errCut = errors.New("zookeeper: the connection was given up")

func (l *link) dial(network, address string, timeout time.Duration) (net.Conn, error) {
	l.mu.Lock()
	cut := l.cut
	l.mu.Unlock()
	if cut {
		return nil, errCut
	}
	c, err := net.DialTimeout(network, address, timeout)
	if err != nil {
		return nil, err
	}
	w := &wire{Conn: c, link: l}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut {
		c.Close()
		return nil, errCut
	}
	l.wire = w
	return w, nil
}

// wire is one TCP connection. It reads along until the server has said hello.
type wire struct {
	net.Conn
	link *link
	head []byte // what was read so far, until hello is complete
	done bool
}

// The server's first words: length, protocol version, timeout in ms, session.
const helloSize = 4 + 4 + 4 + 8

func (w *wire) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	if w.done {
		return n, err
	}
	w.head = append(w.head, b[:n]...)
	if len(w.head) >= helloSize {
		h := hello{
			timeout: time.Duration(int32(binary.BigEndian.Uint32(w.head[8:]))) * time.Millisecond,
			id:      int64(binary.BigEndian.Uint64(w.head[12:])),
		}
		w.link.mu.Lock()
		w.link.hello = h
		w.link.mu.Unlock()
		w.done, w.head = true, nil
	}
	return n, err
}

// SetReadDeadline shortens the client's patience with a server that accepts and
// then says nothing: six session timeouts are no way to find the next server.
func (w *wire) SetReadDeadline(t time.Time) error {
	if most := time.Now().Add(max(w.link.want/6, time.Second)); !w.done && !t.IsZero() && t.After(most) {
		t = most
	}
	return w.Conn.SetReadDeadline(t)
}

// hosts goes round the servers. Names are looked up when they are dialled, not once
// for all, and a connection that breaks is tried again at once; the client rests
// for a second only after it has tried all servers in vain.
type hosts struct {
	mu      sync.Mutex
	servers []string
	next    int
	tried   int
}

func (h *hosts) Init(servers []string) error { h.servers = servers; return nil }

func (h *hosts) Len() int { return len(h.servers) }

func (h *hosts) Next() (string, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.servers[h.next]
	h.next = (h.next + 1) % len(h.servers)
	rest := h.tried >= len(h.servers)
	if rest {
		h.tried = 0
	}
	h.tried++
	return s, rest
}

func (h *hosts) Connected() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tried = 0
}

// silence keeps the client's own messages off the terminal: what matters comes back
// as an error.
type silence struct{}

func (silence) Printf(string, ...any) {}
