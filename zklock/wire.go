package zklock

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"
)

// wire is one TCP connection, in one session. zk's client opens it, begins the session,
// says who it is, and pings. All that the recipe asks goes past that client: it has its
// callers wait on goroutines of their own, and knows no contexts.
//
// The client is the one reader. It is shown its own answers, and of ours the number of
// the last transaction: when it connects again, no server that has not seen that may
// answer.
type wire struct {
	net.Conn
	phone *phone

	in      *bufio.Reader
	greeted bool   // the server has said hello
	rest    int    // bytes of a packet that the client has still to read
	shown   []byte // what it reads before that
	head    [headSize]byte
	body    []byte // of the last answer

	writing sync.Mutex
	hailed  bool   // the client has said hello
	out     []byte // to be written, by whoever writes now
	spare   []byte
	busy    bool // somebody does

	heard atomic.Pointer[time.Time] // when the last packet came

	open  chan struct{} // closed when requests may be sent
	ended chan struct{} // closed when none may be any more

	mu      sync.Mutex
	over    bool
	opened  bool
	xid     int32
	asked   map[int32]func(body []byte, err error) // what is done with answers that are still to come
	watches map[string]*watch
}

// Requests are numbered from here. The client's own, which are few, begin with 1.
const firstXid = 1 << 30

// Packets without a number.
const (
	xidEvent = -1
	xidShown = 0 // nobody's
)

const (
	// The server's first words: length, protocol version, timeout in ms, session.
	helloSize = 4 + 4 + 4 + 8
	// Any other packet begins with: length, number, transaction, error.
	headSize = 4 + 4 + 8 + 4
	// longestAnswer is far beyond what a server sends.
	longestAnswer = 256 << 20
)

var errProtocol = errors.New("zookeeper: the server does not keep to the protocol")

func newWire(c net.Conn, f *phone) *wire {
	return &wire{
		Conn: c, phone: f, in: bufio.NewReader(c), xid: firstXid,
		open: make(chan struct{}), ended: make(chan struct{}),
		asked: make(map[int32]func([]byte, error)), watches: make(map[string]*watch),
	}
}

// Read is the client's. On the way to its packets it takes out ours.
func (w *wire) Read(b []byte) (n int, err error) {
	for w.rest == 0 && len(w.shown) == 0 {
		if err := w.next(); err != nil {
			w.end()
			return 0, err
		}
	}
	if len(w.shown) > 0 {
		n = copy(b, w.shown)
		w.shown = w.shown[n:]
		return n, nil
	}
	n, err = w.in.Read(b[:min(len(b), w.rest)])
	w.rest -= n
	if err != nil {
		w.end()
	}
	return n, err
}

// next looks at the next packet, and takes it if it is ours.
func (w *wire) next() error {
	head, err := w.in.Peek(headSize)
	if err != nil {
		return err
	}
	now := time.Now()
	w.heard.Store(&now)
	size := int(int32(binary.BigEndian.Uint32(head)))
	if size < headSize-4 || size > longestAnswer {
		return errProtocol
	}
	if !w.greeted {
		w.greeted = true
		w.rest = 4 + size
		w.hello(head)
		return nil
	}
	xid := int32(binary.BigEndian.Uint32(head[4:]))
	if xid != xidEvent && xid < firstXid {
		w.rest = 4 + size
		return nil
	}
	zxid, code := head[8:16], int32(binary.BigEndian.Uint32(head[16:]))
	binary.BigEndian.PutUint32(w.head[:], headSize-4)
	binary.BigEndian.PutUint32(w.head[4:], xidShown)
	copy(w.head[8:], zxid)
	if _, err := w.in.Discard(headSize); err != nil {
		return err
	}
	if size -= headSize - 4; cap(w.body) < size {
		w.body = make([]byte, size)
	}
	body := w.body[:size]
	if cap(w.body) > 64<<10 {
		w.body = nil // a long line is no reason to keep so much
	}
	if _, err := io.ReadFull(w.in, body); err != nil {
		return err
	}
	if xid == xidEvent {
		w.event(body)
		return nil
	}
	w.mu.Lock()
	answer := w.asked[xid]
	delete(w.asked, xid)
	w.mu.Unlock()
	if answer == nil {
		return errProtocol
	}
	answer(body, errorOf(code))
	w.shown = w.head[:]
	return nil
}

// hello notes what the server says of the session. There is none if it has expired.
func (w *wire) hello(head []byte) {
	h := hello{
		timeout: time.Duration(int32(binary.BigEndian.Uint32(head[8:]))) * time.Millisecond,
		id:      int64(binary.BigEndian.Uint64(head[12:])),
	}
	l := w.phone.link
	l.mu.Lock()
	w.phone.hello = h
	l.mu.Unlock()
	if !l.proves && h.id != 0 {
		w.ready()
	}
}

// ready lets requests through.
func (w *wire) ready() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.opened {
		w.opened = true
		close(w.open)
	}
}

// Write is the client's. What could not be written breaks the connection, of which the
// client hears as it reads.
func (w *wire) Write(b []byte) (int, error) {
	w.write(b)
	return len(b), nil
}

// write writes a packet, or leaves it to somebody who is about to write. A server that
// does not read for so long that there is no room for it is not waited for.
func (w *wire) write(packet []byte) {
	w.writing.Lock()
	proves := w.hailed && len(packet) >= 12 && binary.BigEndian.Uint32(packet[8:]) == opSetAuth
	w.hailed = true
	w.out = append(w.out, packet...)
	if proves {
		w.ready() // what comes after it is asked by a user
	}
	if w.busy {
		w.writing.Unlock()
		return
	}
	w.busy = true
	var err error
	for len(w.out) > 0 && err == nil {
		out := w.out
		w.out = w.spare[:0]
		w.writing.Unlock()
		if err = w.Conn.SetWriteDeadline(time.Now().Add(w.patience())); err == nil {
			_, err = w.Conn.Write(out)
		}
		w.writing.Lock()
		if w.spare = nil; cap(out) <= 64<<10 {
			w.spare = out
		}
	}
	w.busy = false
	w.writing.Unlock()
	if err != nil {
		w.Close()
	}
}

// mostPatience is far more than a server takes that will answer at all. Whoever asks for a
// session that is longer than servers grant would otherwise wait for a silent one until
// after the end of the session; and a server that is being started may stay silent for ever
// on what it accepts too early (seen with ZooKeeper 3.8.0).
const mostPatience = 10 * time.Second

func (w *wire) patience() time.Duration {
	return min(max(w.phone.link.want/6, time.Second), mostPatience)
}

// SetWriteDeadline is the client's. Each write has its own end.
func (w *wire) SetWriteDeadline(time.Time) error { return nil }

// SetReadDeadline shortens the client's patience with a server that accepts and
// then says nothing: six session timeouts are no way to find the next server.
func (w *wire) SetReadDeadline(t time.Time) error {
	if most := time.Now().Add(w.patience()); !w.greeted && !t.IsZero() && t.After(most) {
		t = most
	}
	return w.Conn.SetReadDeadline(t)
}

// Close ends what is under way with an error.
func (w *wire) Close() error {
	err := w.Conn.Close()
	w.end()
	return err
}

// send sends a request. answer is called once: by the reader, which must not wait, with
// what it may not keep; or with the error that nobody knows.
func (w *wire) send(packet []byte, answer func(body []byte, err error)) {
	select {
	case <-w.open:
	default:
		go func() { // the client has still to say who it is
			select {
			case <-w.open:
				w.send(packet, answer)
			case <-w.ended:
				answer(nil, zk.ErrConnectionClosed)
			}
		}()
		return
	}
	w.mu.Lock()
	if w.over {
		w.mu.Unlock()
		answer(nil, zk.ErrConnectionClosed)
		return
	}
	for {
		if w.xid++; w.xid < firstXid {
			w.xid = firstXid
		}
		if w.asked[w.xid] == nil {
			break
		}
	}
	binary.BigEndian.PutUint32(packet, uint32(len(packet)-4))
	binary.BigEndian.PutUint32(packet[4:], uint32(w.xid))
	w.asked[w.xid] = answer
	w.mu.Unlock()
	w.write(packet)
}

// end tells all that wait that nobody knows, and wakes whoever watches: the server has
// forgotten the watches of this connection.
func (w *wire) end() {
	w.mu.Lock()
	if w.over {
		w.mu.Unlock()
		return
	}
	w.over = true
	close(w.ended)
	asked, watches := w.asked, w.watches
	w.asked, w.watches = nil, nil
	w.mu.Unlock()
	w.phone.link.broke(w)
	for _, answer := range asked {
		answer(nil, zk.ErrConnectionClosed)
	}
	for _, x := range watches {
		close(x.fired)
	}
}

// lives reports whether it is of use.
func (w *wire) lives() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.over
}

// silence is how long ago the last packet came. It is nothing before the first.
func (w *wire) silence() time.Duration {
	if heard := w.heard.Load(); heard != nil {
		return time.Since(*heard)
	}
	return 0
}

// event takes in what has become of a watched node.
func (w *wire) event(body []byte) {
	u := unpacker{b: body}
	u.int32() // what happened
	u.int32() // the state of the session
	node := u.string()
	w.mu.Lock()
	x := w.watches[node]
	delete(w.watches, node)
	w.mu.Unlock()
	if x != nil {
		close(x.fired)
	}
}
