package traffic

import (
	"net"
	"net/rpc"
	"sync"
)

// Resource is what the locks guard: named sets, in a process of its own, read and written
// whole. A set whose caller sends tokens takes nothing from a caller with a token below
// the largest that it has seen, not even a read.
type Resource struct {
	listener net.Listener
	done     sync.WaitGroup
	rec      *Recorder

	mu   sync.Mutex
	sets map[string]*set
}

type set struct {
	version int64
	token   int64 // the largest seen
	members []string
}

// Request is what a user sends to the resource.
type Request struct {
	Key, Claim string
	Proc       string
	Token      int64 // 0: unguarded
	Write      bool
	Members    []string
	Base       int64
}

// Reply is its answer.
type Reply struct {
	Denied  bool
	Version int64
	Members []string
}

// NewResource serves on a loopback port until Close, and records what it does.
func NewResource(rec *Recorder) (*Resource, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &Resource{listener: l, rec: rec, sets: map[string]*set{}}
	server := rpc.NewServer()
	if err := server.Register(r); err != nil {
		return nil, err
	}
	r.done.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go server.ServeConn(c) // until the user hangs up
		}
	})
	return r, nil
}

// Addr is where it listens.
func (r *Resource) Addr() string { return r.listener.Addr().String() }

// Close ends it.
func (r *Resource) Close() {
	r.listener.Close()
	r.done.Wait()
}

// Final records what the sets hold.
func (r *Resource) Final() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, s := range r.sets {
		r.rec.Write(Line{Op: Final, Key: key, Members: s.members})
	}
}

// Answer is atomic. It writes its line before it lets the next one in, so that the lines
// stand in the order of the answers.
func (r *Resource) Answer(q Request, a *Reply) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.sets[q.Key]
	if s == nil {
		s = &set{}
		r.sets[q.Key] = s
	}
	line := Line{Proc: q.Proc, Key: q.Key, Claim: q.Claim, Token: q.Token, Base: q.Base}
	switch {
	case q.Token != 0 && q.Token < s.token:
		line.Op, a.Denied = Denied, true
		r.rec.Write(line)
	case q.Write:
		s.version++
		s.members = q.Members
		line.Op, line.Version = Wrote, s.version
		r.rec.Write(line)
	default:
		a.Members = s.members
	}
	s.token = max(s.token, q.Token)
	a.Version = s.version
	return nil
}
