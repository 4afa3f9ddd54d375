package zklock

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/go-zookeeper/zk"
)

// session is one ZooKeeper session. Its zk.Conn is closed with it: a zk.Conn would begin
// the next session without a word, and send there what was queued in this one.
//
// A session that has heard nothing for as long as a lease is given up and left to run out.
// Another attempt to connect would start the session's time again on the server, and hold up
// the next holder.
type session struct {
	b    *Backend
	zk   *zk.Conn
	send func(ops ...any) ([]zk.MultiResponse, error) // zk.Multi
	ctx  context.Context                              // ends with the session, or when it is given up
	end  context.CancelFunc

	listens sync.Once

	setup      sync.Mutex // guards the next two
	introduced bool       // zk.Conn knows the Digest
	barrier    string     // a node; empty if it must be made

	mu        sync.Mutex
	id        int64         // 0 before the first handshake
	timeout   time.Duration // as the server granted it
	silence   *time.Timer   // ends the session
	tcp       net.Conn      // without TLS
	server    string        // the name of the server that tcp leads to
	stays     bool          // there was room for it when it began
	connected bool
	up        chan struct{} // closed while connected

	distrusted int   // handshakes that failed at the server's certificate
	unwanted   error // why the session ended before any claim was in it
}

// openSession returns the newest session. It begins one if the last one is over, unless this
// process pauses because the server had no room.
func (b *Backend) openSession() (*session, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ctx.Err() != nil {
		return nil, driver.ErrClosed
	}
	if b.newest != nil && !b.newest.isOver() {
		return b.newest, nil
	}
	if b.crowd.left() > 0 {
		return nil, errCrowded
	}
	s := &session{b: b, up: make(chan struct{})}
	s.ctx, s.end = context.WithCancel(context.Background())
	s.mu.Lock() // events wait until zk is set
	defer s.mu.Unlock()
	conn, _, err := zk.Connect(b.servers, b.timeout/haste,
		zk.WithDialer(s.dial),
		zk.WithHostProvider(&serverList{}),
		zk.WithLogger(log.New(io.Discard, "", 0)),
		zk.WithEventCallback(s.event),
	)
	if err == nil {
		s.zk, s.send, b.newest = conn, conn.Multi, s
		context.AfterFunc(s.ctx, s.abandon)
	}
	return s, err
}

// event follows the session. zk.Conn calls it from its own goroutine.
func (s *session) event(e zk.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case e.Type != zk.EventSession:
	case e.State == zk.StateHasSession:
		s.connected = true
		close(s.up)
	case e.State == zk.StateExpired:
		s.end()
	case e.State == zk.StateDisconnected, e.State == zk.StateAuthFailed:
		if s.connected {
			s.connected, s.up = false, make(chan struct{})
		}
		s.b.claims.disconnected(s)
	}
}

// abandon ends the claims of a session that is over, and keeps its zk.Conn from connecting
// again. The server does not hear of it: if the session lives, it runs out.
func (s *session) abandon() {
	s.mu.Lock()
	if s.tcp != nil {
		s.tcp.Close()
	}
	s.mu.Unlock()
	s.b.claims.disconnected(s)
	s.zk.Close() // waits for a second where nothing is connected
}

func (s *session) isOver() bool { return s.ctx.Err() != nil }

// await waits until s is connected.
func (s *session) await(ctx context.Context) error {
	s.mu.Lock()
	up := s.up
	s.mu.Unlock()
	select {
	case <-up:
	case <-s.ctx.Done():
	case <-ctx.Done():
		return fmt.Errorf("%w: there is no connection to any of %s",
			context.Cause(ctx), strings.Join(s.b.servers, ", "))
	}
	return s.over()
}

// over says why the session is over, or returns nil.
func (s *session) over() error {
	if !s.isOver() {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return cmp.Or(s.unwanted, errNoSession)
}

// maxLease is how long a claim of this session may be believed after an answered renewal
// was sent: two thirds of the timeout. The server hears of a session now and then, not
// with each renewal, and a follower that is cut off from its leader goes on answering while
// the leader counts.
func (s *session) maxLease() time.Duration { return s.timeout * 2 / 3 }

func (s *session) lease(ttl time.Duration) time.Duration { return min(ttl, s.maxLease()) }

// session returns the current session, connected and with its barrier made.
func (b *Backend) session(ctx context.Context) (*session, error) {
	for {
		s, err := b.openSession()
		if err == nil {
			err = s.await(ctx)
		}
		if err == nil {
			_, err = s.currentBarrier()
		}
		switch {
		case errors.Is(err, errCrowded):
			if !b.crowd.sitOut(ctx) {
				return nil, err
			}
		case err == nil || s == nil || !s.isOver() || ctx.Err() != nil ||
			errors.As(err, new(*tls.CertificateVerificationError)):
			return s, err
		}
	}
}

// dial opens a transport for zk.Conn.
func (s *session) dial(network, address string, timeout time.Duration) (net.Conn, error) {
	s.mu.Lock()
	begins := s.id == 0
	s.mu.Unlock()
	if begins && s.b.crowd.err() != nil && !s.b.hasRoom(address, address) {
		return nil, s.turnAway()
	}
	tcp, err := net.DialTimeout(network, address, timeout)
	if err != nil {
		return nil, err
	}
	if err := s.use(tcp, address); err != nil {
		return nil, err
	}
	if s.b.tls != nil {
		if tcp, err = s.encrypt(tcp, address); err != nil {
			return nil, err
		}
	}
	return newTransport(tcp, s), nil
}

// use notes which connection to close when the session is over.
func (s *session) use(tcp net.Conn, server string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isOver() {
		tcp.Close()
		return errors.New("zookeeper: the session is over")
	}
	s.tcp, s.server = tcp, server
	return nil
}

// settle closes a session that has just begun if it has the last connection that the server
// allows this host: that is the place of a session whose connection is broken.
func (s *session) settle() error {
	s.mu.Lock()
	stays, at, server := s.stays, s.tcp.RemoteAddr().String(), s.server
	s.mu.Unlock()
	switch {
	case s.isOver():
		return s.over()
	case stays:
		return nil
	case !s.b.hasRoom(at, server):
		s.zk.Close()
		return s.turnAway()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stays = true
	s.b.crowd.leave()
	return nil
}

// turnAway ends a session for which there is no room.
func (s *session) turnAway() error {
	s.b.crowd.turnAway()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unwanted = errCrowded
	s.end()
	return errCrowded
}

// hears notes a packet of the server, and ends the session when none has followed for as
// long as a lease. The handshake says of which session, which is 0 if
// the session has expired.
func (s *session) hears(id int64, timeout time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.id == 0 {
		s.id, s.timeout = id, timeout // once, and before anybody uses s
		s.silence = time.AfterFunc(s.maxLease(), s.end)
	}
	s.silence.Reset(s.maxLease())
	if id != 0 && s.stays {
		s.b.crowd.leave()
	}
}

// The barrier is an ephemeral node of a session. It settles what became of a join whose
// answer was lost. Every join checks that the barrier is there. Once the barrier is deleted, an
// older join is either applied already, and can be seen, or will never be. The next join gets
// another barrier, with a name that was never used.
//
// The barrier prevents this schedule: a follower passes a join on to the leader and dies, and
// another follower says that the claim is not there. Then the join makes a claim that nobody
// knows of, and that the session keeps in line.

// currentBarrier returns the node that a join checks. It makes the node if need be.
func (s *session) currentBarrier() (string, error) {
	s.setup.Lock()
	defer s.setup.Unlock()
	if s.barrier != "" {
		return s.barrier, nil
	}
	if err := s.settle(); err != nil {
		return "", err
	}
	if s.b.digest != "" && !s.introduced {
		// zk.Conn says so by itself with each later connection.
		if err := s.zk.AddAuth("digest", []byte(s.b.digest)); err != nil {
			return "", err
		}
		s.introduced = true
	}
	node := fmt.Sprintf("%s%s/%016x.%s", s.b.prefix, sessionsDir, uint64(s.id), rand.Text())
	err := s.create(node, zk.FlagEphemeral)
	if errors.Is(err, zk.ErrNoNode) {
		for _, dir := range []string{linesDir, sessionsDir, brokenDir} {
			if err := makePath(s.zk, s.b.prefix+dir, formatData, s.b.acl); err != nil {
				return "", err
			}
		}
		err = s.create(node, zk.FlagEphemeral)
	}
	if err == nil {
		s.barrier = node
	}
	return node, err
}

// dropBarrier returns nil when no join that carries this barrier can be applied any more. An
// empty node stands for the current barrier.
func (s *session) dropBarrier(node string) error {
	s.setup.Lock()
	defer s.setup.Unlock()
	if s.barrier == "" || node != "" && s.barrier != node {
		return nil // it was deleted before
	}
	_, err := s.multi(&zk.DeleteRequest{Path: s.barrier, Version: -1})
	if err == nil || errors.Is(err, zk.ErrNoNode) {
		s.barrier = ""
		return nil
	}
	return err
}

// makePath makes a node and, if need be, those above it.
func makePath(conn Conn, node string, data []byte, acl []zk.ACL) error {
	_, err := conn.Create(node, data, zk.FlagPersistent, acl)
	if errors.Is(err, zk.ErrNoNode) {
		if err = makePath(conn, path.Dir(node), data, acl); err != nil {
			return err
		}
		_, err = conn.Create(node, data, zk.FlagPersistent, acl)
	}
	if errors.Is(err, zk.ErrNodeExists) {
		return nil
	}
	return explain(err, &zk.CreateRequest{Path: node})
}
