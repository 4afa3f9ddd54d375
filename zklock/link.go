package zklock

import (
	"errors"
	"net"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/go-zookeeper/zk"
)

// link is the one connection of a Backend: over many TCP connections, and over many
// sessions, for zk's client silently begins a new one when the last has expired.
//
// The client tells nobody which timeout the server has granted, so the link reads
// it from the wire; it has no way to break off without ending the session, so the link
// cuts the wire; and requests go past it (see wire).
//
// A client that has heard nothing for as long as a lease is replaced, and its session is
// left to run out. All claims of the session are lost by then. Each further attempt to
// connect could only hold up who comes next: a server starts the session's time again
// with the request to connect, also when the client never gets the answer. And the
// client might never come back: servers that were restored from an old backup refuse a
// client that has seen a later state.
type link struct {
	servers []string
	want    time.Duration
	proves  bool // the client says who it is before anything is asked
	lost    func(*session)

	mu      sync.Mutex
	shut    bool
	phone   *phone        // the client in use, or nil
	session *session      // the current one, or nil
	up      chan struct{} // closed while session is connected
	gen     int           // counts connections
	giveUp  *time.Timer   // runs while session is cut off
}

// phone is one client of the zk library with its wires.
type phone struct {
	link  *link
	conn  client
	wire  *wire
	cut   bool
	hello hello // of the newest handshake
}

// hello is what the server says of a session when a connection begins.
type hello struct {
	id      int64
	timeout time.Duration
}

func (l *link) init(servers []string, want time.Duration, proves bool, lost func(*session)) {
	l.servers, l.want, l.proves, l.lost = servers, want, proves, lost
	l.up = make(chan struct{})
}

// open starts a client if none runs. It waits for nobody.
func (l *link) open() (client, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.shut {
		return nil, driver.ErrClosed
	}
	if l.phone != nil {
		return l.phone.conn, nil
	}
	f := &phone{link: l}
	conn, _, err := zk.Connect(l.servers, l.want,
		zk.WithDialer(f.dial),
		zk.WithHostProvider(&hosts{}),
		zk.WithLogger(silence{}),
		zk.WithLogInfo(false),
		zk.WithEventCallback(f.event),
	)
	if err != nil {
		return nil, err
	}
	f.conn, l.phone = &direct{conn, f}, f
	return f.conn, nil
}

// event follows the session. The client calls it from its own goroutine before it
// sends anything in the new state, so it must not wait.
func (f *phone) event(e zk.Event) {
	if e.Type != zk.EventSession {
		return
	}
	l := f.link
	l.mu.Lock()
	if l.phone != f && l.phone != nil {
		l.mu.Unlock()
		return // given up
	}
	var over *session
	switch e.State {
	case zk.StateHasSession:
		if l.giveUp != nil {
			l.giveUp.Stop()
			l.giveUp = nil
		}
		if l.session == nil || l.session.id != f.hello.id {
			over, l.session = l.session, newSession(f.hello)
		}
		l.gen++
		select {
		case <-l.up:
		default:
			if f.wire.lives() {
				close(l.up)
			}
		}
	case zk.StateExpired:
		over, l.session = l.session, nil
		l.down()
	case zk.StateDisconnected, zk.StateConnecting, zk.StateAuthFailed:
		l.down()
		if l.session != nil && l.giveUp == nil && !l.shut {
			l.giveUp = time.AfterFunc(l.session.lease(l.session.timeout)-f.wire.silence(), func() { l.replace(f) })
		}
	}
	l.mu.Unlock()
	l.end(over)
}

// end says that a session is over.
func (l *link) end(s *session) {
	if s != nil {
		close(s.over)
		l.lost(s)
	}
}

// replace gives up a client that was cut off for too long.
func (l *link) replace(f *phone) {
	l.mu.Lock()
	select {
	case <-l.up:
		l.mu.Unlock()
		return // it came back at the last moment
	default:
	}
	if l.phone != f || l.shut {
		l.mu.Unlock()
		return
	}
	over := l.session
	l.session, l.phone, l.giveUp = nil, nil, nil
	l.mu.Unlock()
	f.sever()
	l.end(over)
	f.conn.Close()
}

// down says that nothing is connected. l.mu is held.
func (l *link) down() {
	select {
	case <-l.up:
		l.up = make(chan struct{})
	default:
	}
}

// broke says that nothing comes through w any more.
func (l *link) broke(w *wire) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.phone == w.phone && w.phone.wire == w {
		l.down()
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

// hangUp breaks the connection with that number, if it is still in use; the client
// goes on with the next server.
func (l *link) hangUp(gen int) {
	l.mu.Lock()
	var wire *wire
	if l.gen == gen && l.phone != nil {
		wire = l.phone.wire
	}
	l.mu.Unlock()
	if wire != nil {
		wire.Close()
	}
}

// close ends the client: with its session, or leaving that to run out.
func (l *link) close(leaveSession bool) {
	l.mu.Lock()
	f := l.phone
	l.shut = true
	if l.giveUp != nil {
		l.giveUp.Stop()
	}
	l.mu.Unlock()
	if f == nil {
		return
	}
	if leaveSession {
		f.sever()
	}
	f.conn.Close()
	f.sever()
}

// sever ends the connection as a crash would: the server does not hear of it, and
// the session runs out by itself.
func (f *phone) sever() {
	f.link.mu.Lock()
	f.cut = true
	wire := f.wire
	f.link.mu.Unlock()
	if wire != nil {
		wire.Close()
	}
}

var errCut = errors.New("zookeeper: the connection was given up")

func (f *phone) dial(network, address string, timeout time.Duration) (net.Conn, error) {
	c, err := net.DialTimeout(network, address, timeout)
	if err != nil {
		return nil, err
	}
	w := newWire(c, f)
	f.link.mu.Lock()
	cut, old := f.cut, f.wire
	if !cut {
		f.wire = w
	}
	f.link.mu.Unlock()
	if cut {
		c.Close()
		return nil, errCut
	}
	if old != nil {
		old.Close() // the client leaves one open in which it was told that its session is over
	}
	return w, nil
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
