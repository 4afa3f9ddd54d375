package traffic

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"sync"
	"time"
)

// Resource is what the locks guard: named sets, in a process of its own, read and written
// whole. A set whose caller sends tokens takes nothing from a caller with a token below
// the largest that it has seen, not even a read.
type Resource struct {
	l   net.Listener
	rec *Recorder
	all sync.WaitGroup

	mu    sync.Mutex
	sets  map[string]*set
	conns map[net.Conn]bool
}

type set struct {
	version int64
	token   int64 // the largest seen
	members []string
}

// request is a line to the resource.
type request struct {
	Key, Claim string
	Proc       string
	Token      int64 // 0: unguarded
	Write      bool
	Members    []string
	Base       int64
}

// reply is its answer.
type reply struct {
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
	r := &Resource{l: l, rec: rec, sets: map[string]*set{}, conns: map[net.Conn]bool{}}
	r.all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			r.mu.Lock()
			r.conns[c] = true
			r.mu.Unlock()
			r.all.Go(func() { r.serve(c) })
		}
	})
	return r, nil
}

// Addr is where it listens.
func (r *Resource) Addr() string { return r.l.Addr().String() }

// Close ends it.
func (r *Resource) Close() {
	r.l.Close()
	r.mu.Lock()
	for c := range r.conns {
		c.Close()
	}
	r.mu.Unlock()
	r.all.Wait()
}

// Sets returns the members of each set.
func (r *Resource) Sets() map[string][]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := map[string][]string{}
	for key, s := range r.sets {
		all[key] = append([]string(nil), s.members...)
	}
	return all
}

func (r *Resource) serve(c net.Conn) {
	defer c.Close()
	in, out := json.NewDecoder(bufio.NewReader(c)), json.NewEncoder(c)
	for {
		var q request
		if in.Decode(&q) != nil || out.Encode(r.answer(q)) != nil {
			return
		}
	}
}

// answer is one atomic step. Its line is written inside of it, so that the lines stand
// in the order of the steps.
func (r *Resource) answer(q request) reply {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.sets[q.Key]
	if s == nil {
		s = &set{}
		r.sets[q.Key] = s
	}
	line := Line{Proc: q.Proc, Key: q.Key, Claim: q.Claim, Token: q.Token, Base: q.Base}
	var a reply
	switch {
	case q.Token != 0 && q.Token < s.token:
		line.Op, a.Denied = Denied, true
	case q.Write:
		s.token = max(s.token, q.Token)
		s.version++
		s.members = q.Members
		line.Op, line.Version = Wrote, s.version
	default:
		s.token = max(s.token, q.Token)
		a.Members = s.members
		line.Op = Read
	}
	a.Version = s.version
	r.rec.Write(line)
	return a
}

// visitor is a user's connection to the resource.
type visitor struct {
	addr string
	c    net.Conn
	in   *json.Decoder
	out  *json.Encoder
}

// ask sends one request. An error says that nobody knows what became of it.
func (v *visitor) ask(q request) (reply, error) {
	var a reply
	if v.c == nil {
		c, err := net.DialTimeout("tcp", v.addr, quick)
		if err != nil {
			return a, err
		}
		v.c, v.in, v.out = c, json.NewDecoder(c), json.NewEncoder(c)
	}
	err := v.c.SetDeadline(time.Now().Add(10 * time.Second))
	if err == nil {
		err = v.out.Encode(q)
	}
	if err == nil {
		err = v.in.Decode(&a)
	}
	if err != nil {
		v.close()
		return a, fmt.Errorf("the resource: %w", err)
	}
	return a, nil
}

func (v *visitor) close() {
	if v.c != nil {
		v.c.Close()
		v.c = nil
	}
}
