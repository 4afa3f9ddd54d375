package zklock

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/go-zookeeper/zk"
)

// session is one ZooKeeper session on its client. It keeps two ephemeral nodes.
//
// The heartbeat is written to as proof that the session lives.
//
// The barrier settles what became of a join whose answer was lost. Every join checks
// the barrier's version. Once a write to the barrier is answered, an older join is
// either applied already, and can be seen, or will never be. Without the barrier there
// is this schedule: a follower passes a join on to the leader and dies, the client asks
// another follower, which has not heard of the join yet, and then the join makes a claim
// that nobody knows of and that the session keeps in line as long as the process runs.
//
// The barrier also binds a join to its session. zk.Conn sends what it has queued in the
// next session, where the barrier of this one is not there. For that no node of a
// session may be made in the next one and be believed: see makeNodes.
type session struct {
	*client
	id      int64
	timeout time.Duration // as the server granted it
	over    chan struct{} // closed when the session has ended
	setup   chan struct{} // holds a token while somebody makes the nodes
	begin   sync.Once     // of what runs in the background

	mu      sync.Mutex
	nodes   string        // what the paths of the two nodes begin with
	there   bool          // they are there, as far as is known
	made    int           // attempts to make them
	version int32         // the barrier's
	skew    time.Duration // the server's clock less ours
}

func newSession(cl *client, h handshake) *session {
	return &session{
		client: cl, id: h.session, timeout: h.timeout,
		over: make(chan struct{}), setup: make(chan struct{}, 1),
	}
}

func (s *session) ended() bool {
	select {
	case <-s.over:
		return true
	default:
		return false
	}
}

// maxLease is how long a claim of this session may be believed after an answered write
// was sent. Two thirds of the timeout: the server hears of a session now and then, not
// with each write, and a follower that is cut off from its leader goes on answering while
// the leader counts.
func (s *session) maxLease() time.Duration { return s.timeout * 2 / 3 }

func (s *session) lease(ttl time.Duration) time.Duration { return min(ttl, s.maxLease()) }

// prepared reports whether the nodes of s are there, as far as is known.
func (s *session) prepared() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.there
}

// heartbeat is the write that proves that s lives.
func (s *session) heartbeat() *zk.SetDataRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &zk.SetDataRequest{Path: s.nodes + heartbeatNode, Data: formatData, Version: -1}
}

// barrier is the condition that a join carries.
func (s *session) barrier() *zk.CheckVersionRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &zk.CheckVersionRequest{Path: s.nodes + barrierNode, Version: s.version}
}

// saw notes the barrier's version. Answers may come out of order.
func (s *session) saw(version int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version = max(s.version, version)
}

// clock notes what time it is for the server.
func (s *session) clock(ms int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.skew = time.Until(time.UnixMilli(ms))
}

// now is the time by the server's clock, more or less.
func (s *session) now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Now().Add(s.skew)
}

// raiseBarrier returns nil when no join that was sent before can be applied any more.
func (s *session) raiseBarrier(ctx context.Context) error {
	barrier := s.barrier().Path
	_, err := ask(ctx, s.client, toWrite(barrier), func() (*zk.Stat, error) {
		stat, err := s.zk.Set(barrier, formatData, -1)
		if err == nil { // also when the caller has gone
			s.saw(stat.Version)
			s.clock(stat.Mtime)
		}
		return stat, err
	})
	if errors.Is(err, zk.ErrNoNode) {
		// A barrier that was deleted is as good: no other has its name.
		s.forgetNodes(barrier)
		return nil
	}
	return err
}

// readBarrier learns the barrier's version after a join met another one: a write to it
// was applied whose answer was lost.
func (s *session) readBarrier(ctx context.Context, met int32) error {
	barrier := s.barrier()
	if barrier.Version != met {
		return nil // learned meanwhile
	}
	stat, err := s.exists(ctx, barrier.Path)
	if err == nil {
		s.saw(stat.Version)
	}
	return err
}

// session returns the current session, connected and with its nodes made.
func (b *Backend) session(ctx context.Context) (*session, error) {
	for {
		s, err := b.conn.await(ctx)
		if err != nil {
			return nil, err
		}
		if s.prepared() {
			return s, nil
		}
		if err = b.prepare(ctx, s); err == nil {
			return s, nil
		}
		if !s.ended() {
			return nil, err
		}
	}
}

// prepare makes the nodes of s, unless they are there. One caller at a time does.
func (b *Backend) prepare(ctx context.Context, s *session) error {
	select {
	case s.setup <- struct{}{}:
		defer func() { <-s.setup }()
	case <-s.over:
		return errNoSession
	case <-ctx.Done():
		return ctx.Err()
	case <-b.tasks.closed():
		return driver.ErrClosed
	}
	if s.prepared() {
		return nil
	}
	if b.digest != "" {
		// zk.Conn says so by itself with each later connection. Once more does no harm.
		if err := s.addAuth(ctx, "digest", b.digest); err != nil {
			return err
		}
	}
	if err := b.makeNodes(ctx, s); err != nil {
		return err
	}
	s.begin.Do(func() {
		b.tasks.run(func(ctx context.Context) { b.sweepBroken(ctx, s) })
		b.tasks.run(func(ctx context.Context) { b.probe(ctx, s) })
	})
	return nil
}

// forgetNodes has the nodes of s made again: somebody deleted node, one of the two.
func (s *session) forgetNodes(node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if strings.HasPrefix(node, s.nodes+".") { // else they were made again meanwhile
		s.there = false
	}
}

// makeNodes makes the nodes of s. Each attempt has names of its own, and they are
// believed only if the answer comes before the end of s is known. So an attempt that was
// left in zk.Conn's queue, and is applied in the next session, makes no barrier that a
// join of s would pass.
func (b *Backend) makeNodes(ctx context.Context, s *session) error {
	for range 3 {
		s.mu.Lock()
		s.made++
		nodes := fmt.Sprintf("%s%s/%016x.%d", b.prefix, sessionsDir, uint64(s.id), s.made)
		s.mu.Unlock()
		rs, err := s.multi(ctx,
			&zk.CreateRequest{Path: nodes + heartbeatNode, Data: formatData, Acl: b.acl, Flags: zk.FlagEphemeral},
			&zk.CreateRequest{Path: nodes + barrierNode, Data: formatData, Acl: b.acl, Flags: zk.FlagEphemeral},
			&zk.SetDataRequest{Path: nodes + barrierNode, Data: formatData, Version: -1},
		)
		switch {
		case err == nil && s.ended():
			return errNoSession
		case err == nil:
			s.clock(rs[2].Stat.Mtime)
			s.mu.Lock()
			s.nodes, s.there, s.version = nodes, true, rs[2].Stat.Version
			s.mu.Unlock()
			return nil
		case !errors.Is(err, zk.ErrNoNode):
			return err
		}
		for _, dir := range []string{linesDir, sessionsDir, brokenDir} {
			if err := b.makePath(ctx, s, b.prefix+dir); err != nil {
				return err
			}
		}
	}
	return fmt.Errorf("somebody deletes %s again and again", b.prefix+sessionsDir)
}

// makePath makes a persistent node and all above it.
func (b *Backend) makePath(ctx context.Context, s *session, node string) error {
	err := b.makeNode(ctx, s, node)
	if !errors.Is(err, zk.ErrNoNode) {
		return err
	}
	if err := b.makePath(ctx, s, path.Dir(node)); err != nil {
		return err
	}
	return b.makeNode(ctx, s, node)
}

// makeNode makes a node that may be there already: then the right to make it is not
// needed.
func (b *Backend) makeNode(ctx context.Context, s *session, node string) error {
	err := s.create(ctx, node, formatData, b.acl)
	if errors.Is(err, zk.ErrNodeExists) {
		return nil
	}
	if errors.Is(err, zk.ErrNoAuth) {
		if _, err2 := s.exists(ctx, node); err2 == nil {
			return nil
		}
	}
	return err
}

// probe asks something small twelve times in a session timeout while a claim is in line.
// The leader counts a session's time from when its follower last passed on that it had
// heard of it, at each half tick, and not from our writes. zk.Conn's own pings, three in
// a timeout, leave a gap of a third and half a tick. A follower that is cut off right
// after it answered a write would then let the session end earlier than two thirds of its
// timeout after the write.
//
// If there is no answer for a sixth of the timeout, probe breaks the connection, so that
// another server is found while the leases still last. zk.Conn would notice a silent
// server only when they are over.
func (b *Backend) probe(ctx context.Context, s *session) {
	tick := time.NewTicker(max(s.timeout/12, 10*time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-s.over:
			return
		case <-ctx.Done():
			return
		}
		now, generation := b.conn.state()
		if now != s || !b.claims.any(s) {
			continue
		}
		soon, cancel := context.WithTimeout(ctx, s.timeout/6)
		_, err := s.exists(soon, s.heartbeat().Path)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			b.conn.drop(generation)
		}
	}
}
