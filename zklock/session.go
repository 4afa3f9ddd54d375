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

	setup      sync.Mutex // guards the next two
	introduced bool       // zk.Conn knows the Digest
	barrier    string     // a node; empty if it must be made

	mu        sync.Mutex
	id        int64         // 0 before the first handshake
	timeout   time.Duration // as the server granted it
	silence   *time.Timer   // ends the session
	tcp       net.Conn      // without TLS
	connected bool
	up        chan struct{} // closed while connected
	full      chan struct{} // closed when the server had no room for a new session

	distrusted int   // handshakes that failed at the server's certificate
	untrusted  error // why the session ended, if those are the reason
}

// openSession returns the newest session. It begins one if the last one is over.
func (b *Backend) openSession() (*session, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ctx.Err() != nil {
		return nil, driver.ErrClosed
	}
	if b.newest != nil && !b.newest.isOver() {
		return b.newest, nil
	}
	s := &session{b: b, up: make(chan struct{}), full: make(chan struct{})}
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
	up, full := s.up, s.full
	s.mu.Unlock()
	select {
	case <-up:
	case <-full:
		return errCrowded
	case <-s.ctx.Done():
	case <-ctx.Done():
		return fmt.Errorf("%w: there is no connection to any of %s",
			context.Cause(ctx), strings.Join(s.b.servers, ", "))
	}
	if s.isOver() {
		s.mu.Lock()
		defer s.mu.Unlock()
		return cmp.Or(s.untrusted, errNoSession)
	}
	return nil
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
		if err != nil {
			return nil, err
		}
		if err = s.await(ctx); err == nil {
			_, err = s.currentBarrier()
		}
		if err == nil || !s.isOver() || ctx.Err() != nil || errors.As(err, new(*tls.CertificateVerificationError)) {
			return s, err
		}
	}
}

// dial opens a transport for zk.Conn.
func (s *session) dial(network, address string, timeout time.Duration) (net.Conn, error) {
	tcp, err := s.dialTCP(network, address, timeout)
	if err != nil {
		return nil, err
	}
	if err := s.use(tcp); err != nil {
		return nil, err
	}
	if s.b.tls != nil {
		if tcp, err = s.encrypt(tcp, address); err != nil {
			return nil, err
		}
	}
	return newTransport(tcp, s), nil
}

// dialTCP makes a connection. A session that has not begun leaves room for those that have.
func (s *session) dialTCP(network, address string, timeout time.Duration) (net.Conn, error) {
	s.mu.Lock()
	newcomer := s.id == 0 && s.b.crowd.err() != nil
	s.mu.Unlock()
	if !newcomer {
		return net.DialTimeout(network, address, timeout)
	}
	tcp, err := s.b.crowd.enter(network, address, timeout)
	if errors.Is(err, errCrowded) {
		s.mu.Lock()
		defer s.mu.Unlock()
		close(s.full)
		s.full = make(chan struct{})
	}
	return tcp, err
}

// use notes which connection to close when the session is over.
func (s *session) use(tcp net.Conn) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isOver() {
		tcp.Close()
		return errors.New("zookeeper: the session is over")
	}
	s.tcp = tcp
	return nil
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
