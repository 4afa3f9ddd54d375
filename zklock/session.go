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

// session is one ZooKeeper session. It keeps two ephemeral nodes of its own.
//
// The beat is written to as proof that the session lives. The fence settles what
// became of a request whose answer was lost: every Enter carries a check of the
// fence's version, so once a write to the fence is answered, an older Enter either
// is applied already, and can be seen, or never will be. Without it, an Enter that
// the old server had passed on, and that the new one has not heard of yet when it is
// asked, would make a claim that nobody knows of, and that the other claims of its
// session keep alive for as long as the process runs. The check also binds the Enter
// to its session: the client sends what it had queued in the next one, where the
// fence of this one is gone.
type session struct {
	hello
	over chan struct{} // closed when it has expired

	setup chan struct{} // held by whoever makes its nodes
	ready bool          // they are there; guarded by setup, read under mu too

	mu    sync.Mutex
	fence int32         // the fence's version
	skew  time.Duration // the server's clock less ours

	bumps shared // writes to the fence

	named sync.Once
	name  string // what the paths of its nodes begin with
}

func newSession(h hello) *session {
	return &session{hello: h, over: make(chan struct{}), setup: make(chan struct{}, 1)}
}

func (s *session) path(b *Backend, node string) string {
	s.named.Do(func() { s.name = fmt.Sprintf("%s%s/%016x", b.prefix, sessionsDir, uint64(s.id)) })
	return s.name + node
}

func (s *session) ended() bool {
	select {
	case <-s.over:
		return true
	default:
		return false
	}
}

// lease is how long a claim of this session may be believed after an answered write
// was sent. Two thirds: the server hears of a session now and then, not with each
// write, and a follower that is cut off from its leader goes on answering while
// the leader counts.
func (s *session) lease(ttl time.Duration) time.Duration {
	return min(ttl, s.timeout*2/3)
}

// fenceVersion is what an Enter checks.
func (s *session) fenceVersion() int32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fence
}

// clock notes what time it is for the server.
func (s *session) clock(ms int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.skew = time.Until(millis(ms))
}

// now is the time by the server's clock, more or less.
func (s *session) now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Now().Add(s.skew)
}

// shared is one request that serves all who ask while it has not been sent.
type shared struct {
	mu   sync.Mutex
	next *flight // not sent yet, or nil
	busy bool
}

type flight struct {
	done chan struct{}
	err  error
}

// do has f called once after do was called, and returns its error. f runs on a
// goroutine of its own, whoever gives up meanwhile.
func (r *shared) do(ctx context.Context, f func() error) error {
	r.mu.Lock()
	if r.next == nil {
		r.next = &flight{done: make(chan struct{})}
	}
	mine := r.next
	if !r.busy {
		r.busy = true
		go r.run(f)
	}
	r.mu.Unlock()
	select {
	case <-mine.done:
		return mine.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *shared) run(f func() error) {
	for {
		r.mu.Lock()
		now := r.next
		r.next = nil
		if now == nil {
			r.busy = false
			r.mu.Unlock()
			return
		}
		r.mu.Unlock()
		now.err = f()
		close(now.done)
	}
}

// connected waits for a session, and for its connection.
func (b *Backend) connected(ctx context.Context) (client, *session, error) {
	for {
		conn, err := b.link.open()
		if err != nil {
			return nil, nil, err
		}
		s, _, up := b.link.state()
		if s != nil {
			return conn, s, nil
		}
		timer := time.NewTimer(time.Second) // the client may be replaced meanwhile
		select {
		case <-up:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, nil, fmt.Errorf("%w: there is no connection to any of %s", ctx.Err(), strings.Join(b.link.servers, ", "))
		case <-b.closed:
			timer.Stop()
			return nil, nil, driver.ErrClosed
		}
		timer.Stop()
	}
}

// live returns the current session, with its nodes made.
func (b *Backend) live(ctx context.Context) (client, *session, error) {
	for {
		conn, s, err := b.connected(ctx)
		if err != nil {
			return nil, nil, err
		}
		select {
		case s.setup <- struct{}{}:
		case <-s.over:
			continue
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		case <-b.closed:
			return nil, nil, driver.ErrClosed
		}
		if !s.ready {
			err = b.makeNodes(ctx, conn, s)
			s.ready = err == nil
			if err == nil {
				b.background(func(ctx context.Context) { b.sweepBroken(ctx, s) })
				b.background(func(ctx context.Context) { b.keepHeard(ctx, conn, s) })
			}
		}
		<-s.setup
		if err != nil {
			if s.ended() {
				continue
			}
			return nil, nil, err
		}
		return conn, s, nil
	}
}

// unready has the nodes of s made again: somebody deleted them.
func (b *Backend) unready(ctx context.Context, s *session) {
	select {
	case s.setup <- struct{}{}:
		s.ready = false
		<-s.setup
	case <-ctx.Done():
	}
}

func (b *Backend) makeNodes(ctx context.Context, conn client, s *session) error {
	if b.digest != "" {
		// Each client says so by itself from then on; once more does no harm.
		said := make(future[nothing], 1)
		go func() { said <- answer[nothing]{err: conn.AddAuth("digest", []byte(b.digest))} }()
		if _, err := said.wait(ctx, b); err != nil {
			return err
		}
	}
	beat, fence := s.path(b, "b"), s.path(b, "f")
	for range 3 {
		rs, err := conn.Multi(
			&zk.CreateRequest{Path: beat, Data: []byte{'0' + format}, Acl: b.acl, Flags: zk.FlagEphemeral},
			&zk.CreateRequest{Path: fence, Data: []byte{'0' + format}, Acl: b.acl, Flags: zk.FlagEphemeral},
			&zk.SetDataRequest{Path: fence, Data: []byte{'0' + format}, Version: -1},
		).wait(ctx, b)
		switch {
		case err == nil:
			s.fenced(rs[2].Stat)
			return nil
		case errors.Is(err, zk.ErrNodeExists):
			// The answer to an earlier try was lost, or one of the two was deleted.
			for _, node := range []string{beat, fence} {
				if err := b.create(ctx, conn, node, zk.FlagEphemeral); err != nil {
					return err
				}
			}
			return b.bump(ctx, conn, s)
		case !errors.Is(err, zk.ErrNoNode):
			return err
		}
		for _, dir := range []string{linesDir, sessionsDir, brokenDir} {
			if err := b.makePath(ctx, conn, b.prefix+dir); err != nil {
				return err
			}
		}
	}
	return fmt.Errorf("somebody deletes %s again and again", path.Dir(beat))
}

// makePath makes a persistent node and all above it. Where a part is there already
// the right to make one is not needed.
func (b *Backend) makePath(ctx context.Context, conn client, p string) error {
	err := b.create(ctx, conn, p, zk.FlagPersistent)
	if !errors.Is(err, zk.ErrNoNode) {
		return err
	}
	if err := b.makePath(ctx, conn, path.Dir(p)); err != nil {
		return err
	}
	return b.create(ctx, conn, p, zk.FlagPersistent)
}

// create makes a node that may be there already.
func (b *Backend) create(ctx context.Context, conn client, p string, flags int32) error {
	_, err := conn.Create(p, []byte{'0' + format}, flags, b.acl).wait(ctx, b)
	if errors.Is(err, zk.ErrNodeExists) {
		return nil
	}
	if errors.Is(err, zk.ErrNoAuth) {
		// It may be there all the same, in a tree that is not ours to write to.
		if _, err2 := conn.Exists(p).wait(ctx, b); err2 == nil && flags == zk.FlagPersistent {
			return nil
		}
	}
	return err
}

// keepHeard asks something small twelve times in a session's timeout while any claim is
// in line. The leader counts a session's time from when its follower last passed on
// that it had heard of it, at each half tick, and not from our writes. The client's
// own pings, three in a timeout, leave a gap of a third and half a tick; a follower
// that is cut off right after it had answered a write would then let the session
// end earlier than two thirds of its timeout after the write.
//
// If there is no answer for a sixth of the timeout, it breaks the connection, so that
// another server is found while the leases still last: the client would notice a
// server that has gone silent only when they are over.
func (b *Backend) keepHeard(ctx context.Context, conn client, s *session) {
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
		b.mu.Lock()
		idle := true
		for _, p := range b.places {
			if p.path != "" && p.session == s {
				idle = false
				break
			}
		}
		b.mu.Unlock()
		now, gen, _ := b.link.state()
		if idle || now != s {
			continue
		}
		soon, cancel := context.WithTimeout(ctx, s.timeout/6)
		_, err := conn.Exists(s.path(b, "b")).wait(soon, b)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			b.link.hangUp(gen)
		}
	}
}

// bump raises the fence: when it returns nil, no Enter that was sent before the
// call can be applied any more.
func (b *Backend) bump(ctx context.Context, conn client, s *session) error {
	return s.bumps.do(ctx, func() error {
		a := <-conn.Set(s.path(b, "f"), []byte{'0' + format}, -1)
		stat, err := a.t, a.err
		if err == nil {
			s.fenced(stat)
		}
		return err
	})
}

func (s *session) fenced(stat *zk.Stat) {
	s.clock(stat.Mtime)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fence = stat.Version
}
