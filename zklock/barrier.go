package zklock

import (
	"crypto/rand"
	"errors"
	"fmt"
	"path"

	"github.com/go-zookeeper/zk"
)

// The barrier is an ephemeral node of a session. It settles what became of a join whose
// answer was lost. Every join checks that the barrier is there. Once the barrier is deleted, an
// older join is either applied already, and can be seen, or will never be. The next join gets
// another barrier, with a name that was never used.
//
// Without the barrier there is this schedule: a follower passes a join on to the leader and
// dies, the client asks another follower, which has not heard of the join yet, and then the
// join makes a claim that nobody knows of and that the session keeps in line as long as the
// process runs.

// currentBarrier is the node that a join checks. It is empty if the barrier must be made.
func (s *session) currentBarrier() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.barrier
}

// dropBarrier returns nil when no join that carries this barrier can be applied any more.
func (s *session) dropBarrier(node string) error {
	if node == "" || s.currentBarrier() != node {
		return nil // it was deleted before
	}
	_, err := s.multi(&zk.DeleteRequest{Path: node, Version: -1})
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.barrier == node {
		s.barrier = ""
	}
	return nil
}

// makeBarrier makes the barrier of s and, if need be, the nodes above it.
func (b *Backend) makeBarrier(s *session) error {
	node := fmt.Sprintf("%s%s/%016x.%s", b.prefix, sessionsDir, uint64(s.id), rand.Text())
	err := s.create(node, zk.FlagEphemeral)
	if errors.Is(err, zk.ErrNoNode) {
		for _, dir := range []string{linesDir, sessionsDir, brokenDir} {
			make := func(node string) error { return s.create(node, zk.FlagPersistent) }
			if err := makePath(b.prefix+dir, make); err != nil {
				return err
			}
		}
		err = s.create(node, zk.FlagEphemeral)
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.barrier = node
	return nil
}

// makePath makes a node and, if need be, those above it.
func makePath(node string, create func(node string) error) error {
	err := create(node)
	if errors.Is(err, zk.ErrNoNode) {
		if err = makePath(path.Dir(node), create); err == nil {
			err = create(node)
		}
	}
	if errors.Is(err, zk.ErrNodeExists) {
		return nil
	}
	return err
}
