package zklock

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"
)

// The barrier is an ephemeral node of a session. It settles what became of a join whose
// answer was lost. Every join checks the barrier's version. Once a write to the barrier is
// answered, an older join is either applied already, and can be seen, or will never be.
//
// Without the barrier there is this schedule: a follower passes a join on to the leader and
// dies, the client asks another follower, which has not heard of the join yet, and then the
// join makes a claim that nobody knows of and that the session keeps in line as long as the
// process runs.

// check is the condition that a join carries. Its path is empty if the barrier must be made.
func (s *session) check() zk.CheckVersionRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.barrier
}

// forgetBarrier has the barrier made again: somebody deleted node, which was it.
func (s *session) forgetBarrier(node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.barrier.Path == node { // else it was made again meanwhile
		s.barrier.Path = ""
	}
}

// raiseBarrier returns nil when no join that was sent before can be applied any more.
func (s *session) raiseBarrier() error {
	node := s.check().Path
	stat, err := s.zk.Set(node, formatData, -1)
	if errors.Is(err, zk.ErrNoNode) {
		s.forgetBarrier(node) // as good: no other has its name
		return nil
	}
	if err != nil {
		return explain(err, &zk.SetDataRequest{Path: node})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.barrier.Path == node {
		s.barrier.Version = max(s.barrier.Version, stat.Version) // answers may come out of order
	}
	return nil
}

// makeBarrier makes the barrier of s and, if need be, the nodes above it. Each barrier has a
// name of its own, for versions begin anew.
func (b *Backend) makeBarrier(s *session) error {
	node := fmt.Sprintf("%s%s/%016x.%s", b.prefix, sessionsDir, uint64(s.id), rand.Text())
	err := s.create(node, zk.FlagEphemeral, b.acl)
	if errors.Is(err, zk.ErrNoNode) {
		var denied error
		for _, dir := range []string{linesDir, sessionsDir, brokenDir} {
			denied = cmp.Or(denied, makePath(b.prefix+dir, func(node string) error {
				return s.create(node, zk.FlagPersistent, b.acl)
			}))
		}
		if err = s.create(node, zk.FlagEphemeral, b.acl); errors.Is(err, zk.ErrNoNode) {
			err = cmp.Or(denied, err)
		}
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.barrier = zk.CheckVersionRequest{Path: node}
	return nil
}

// makePath makes a node and all above it. A node that may not be made may be there already.
func makePath(node string, create func(node string) error) (denied error) {
	for i := 1; i <= len(node); i++ {
		if i < len(node) && node[i] != '/' {
			continue
		}
		switch err := create(node[:i]); {
		case err == nil, errors.Is(err, zk.ErrNodeExists):
			denied = nil
		case errors.Is(err, zk.ErrNoAuth):
			denied = err
		default:
			return cmp.Or(denied, err)
		}
	}
	return denied
}
