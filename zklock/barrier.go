package zklock

import (
	"errors"
	"fmt"
	"path"

	"github.com/go-zookeeper/zk"
)

// barrier is an ephemeral node of a session. It settles what became of a join whose answer
// was lost. Every join checks the barrier's version. Once a write to the barrier is answered,
// an older join is either applied already, and can be seen, or will never be.
//
// Without the barrier there is this schedule: a follower passes a join on to the leader and
// dies, the client asks another follower, which has not heard of the join yet, and then the
// join makes a claim that nobody knows of and that the session keeps in line as long as the
// process runs.
type barrier struct {
	node    string // empty if it must be made
	version int32
	made    int // how often it was made; each has a name of its own, for versions begin anew
}

// check is the condition that a join carries.
func (s *session) check() *zk.CheckVersionRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &zk.CheckVersionRequest{Path: s.barrier.node, Version: s.barrier.version}
}

// forgetBarrier has the barrier made again: somebody deleted node, which was it.
func (s *session) forgetBarrier(node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.barrier.node == node { // else it was made again meanwhile
		s.barrier.node = ""
	}
}

// sawBarrier notes the version of the barrier. Answers may come out of order.
func (s *session) sawBarrier(node string, version int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.barrier.node == node {
		s.barrier.version = max(s.barrier.version, version)
	}
}

// raiseBarrier returns nil when no join that was sent before can be applied any more.
func (s *session) raiseBarrier() error {
	node := s.check().Path
	stat, err := s.zk.Set(node, formatData, -1)
	switch {
	case err == nil:
		s.sawBarrier(node, stat.Version)
	case errors.Is(err, zk.ErrNoNode):
		s.forgetBarrier(node) // as good: no other has its name
		return nil
	}
	return toWrite(node).explain(err)
}

// makeBarrier makes the barrier of s and, if need be, the nodes above it.
func (b *Backend) makeBarrier(s *session) error {
	s.mu.Lock()
	s.barrier.made++
	node := fmt.Sprintf("%s%s/%016x.%d", b.prefix, sessionsDir, uint64(s.id), s.barrier.made)
	s.mu.Unlock()
	err := s.create(node, zk.FlagEphemeral, b.acl)
	if errors.Is(err, zk.ErrNoNode) {
		for _, dir := range []string{linesDir, sessionsDir, brokenDir} {
			if err := b.makePath(s, b.prefix+dir); err != nil {
				return err
			}
		}
		err = s.create(node, zk.FlagEphemeral, b.acl)
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.barrier.node, s.barrier.version = node, 0
	return nil
}

// makePath makes a persistent node and all above it. Where a node is there already, the
// right to make it is not needed.
func (b *Backend) makePath(s *session, node string) error {
	err := s.create(node, zk.FlagPersistent, b.acl)
	switch {
	case errors.Is(err, zk.ErrNodeExists):
		return nil
	case errors.Is(err, zk.ErrNoAuth):
		if _, err2 := s.exists(node); err2 == nil {
			return nil
		}
	case errors.Is(err, zk.ErrNoNode):
		if err := b.makePath(s, path.Dir(node)); err != nil {
			return err
		}
		return b.makePath(s, node)
	}
	return err
}
