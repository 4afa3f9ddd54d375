package traffic

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Resource is what the locks guard: named sets, in a process of its own, read and written
// whole. A set whose caller sends tokens takes nothing from a caller with a token below
// the largest that it has seen, not even a read.
type Resource struct {
	addr   string
	server http.Server
	done   sync.WaitGroup
	rec    *Recorder

	mu   sync.Mutex
	sets map[string]*set
}

type set struct {
	version int64
	token   int64 // the largest seen
	members []string
}

// request is what a user sends to the resource.
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
	r := &Resource{addr: l.Addr().String(), rec: rec, sets: map[string]*set{}}
	r.server.Handler = r
	r.done.Go(func() { _ = r.server.Serve(l) })
	return r, nil
}

// Addr is where it listens.
func (r *Resource) Addr() string { return r.addr }

// Close ends it.
func (r *Resource) Close() {
	r.server.Close()
	r.done.Wait()
}

// Sets returns the members of each set.
func (r *Resource) Sets() map[string][]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := map[string][]string{}
	for key, s := range r.sets {
		all[key] = slices.Clone(s.members)
	}
	return all
}

// ServeHTTP answers one request.
func (r *Resource) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	var in request
	if err := json.NewDecoder(q.Body).Decode(&in); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	_ = json.NewEncoder(w).Encode(r.answer(in)) // a user that is gone asks no more
}

// answer is atomic. It writes its line before it lets the next one in, so that the lines
// stand in the order of the answers.
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

// visitor asks the resource at addr.
type visitor struct {
	addr string
	http http.Client
}

func newVisitor(addr string) *visitor {
	return &visitor{addr, http.Client{Transport: &http.Transport{}, Timeout: 10 * time.Second}}
}

// ask sends one request. An error says that nobody knows what became of it.
func (v *visitor) ask(q request) (a reply, err error) {
	body, err := json.Marshal(q)
	if err != nil {
		return a, err
	}
	resp, err := v.http.Post("http://"+v.addr, "application/json", bytes.NewReader(body))
	if err != nil {
		return a, fmt.Errorf("the resource: %w", err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&a); err != nil {
		return a, fmt.Errorf("the resource: %w", err)
	}
	return a, nil
}

func (v *visitor) close() { v.http.CloseIdleConnections() }
