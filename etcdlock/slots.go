package etcdlock

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"strconv"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock/driver"
)

// slots gives the claims of a Backend the names of their keys. Each is used again when its
// claim has left: a server goes over all names in a range that there ever were since it was
// compacted, as transactions do with those of a line. With a name for each claim a lock
// that was taken a hundred thousand times would cost fifty times as much as a new one.
//
// A claim keeps its name until it is known that it is not in line, and that no Enter of it is
// still under way: that two Enters of one claim put it under one name makes it one claim.
// The names of one Backend differ from those of all others. That no two claims have the
// same one is compared by each transaction that puts a claim. Nor is a name given again
// while a delete of it may still arrive: that would end whoever has it then.
type slots struct {
	mu    sync.Mutex
	tag   string // what the names begin with
	names map[place]string
	taken map[string]*taking // names
	idle  int                // how many of them nobody asks for
}

// taking is what is known of a name.
type taking struct {
	by      place
	until   time.Time // zero while somebody asks for by
	doubt   bool      // an Enter of by was sent that may still arrive
	sure    bool      // the last Enter of by was answered: by was in line
	deletes int       // of the key that were sent and may still arrive
}

func (s *slots) init() {
	s.retag()
	s.names = make(map[place]string)
	s.taken = make(map[string]*taking)
}

// retag makes all names others from now on. s.mu is held, or nobody else knows s.
func (s *slots) retag() { s.tag = rand.Text()[:16] }

// name returns the name of a claim that this Backend has put, or may have put; else "".
func (s *slots) name(p place) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.names[p]
}

// take returns the name under which a claim is, or is to be put.
func (s *slots) take(line lineKeys, c *driver.Claim) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := place{c.Key, c.ID}
	if name, known := s.names[p]; known {
		t := s.taken[name]
		if !t.until.IsZero() {
			s.idle--
		}
		t.until, t.sure = time.Time{}, false
		return name
	}
	begins := string(line) + string(classOf(c))
	for n := 0; ; n++ {
		name := begins + s.tag + strconv.Itoa(n)
		if t := s.taken[name]; t != nil && (t.until.IsZero() || t.until.After(time.Now())) {
			continue
		}
		tag := s.tag
		if s.forget(name); s.tag != tag {
			n = -1 // all names are others
			continue
		}
		s.names[p] = name
		s.taken[name] = &taking{by: p}
		return name
	}
}

// of returns what is known of the name of p, or nil if p has none. s.mu is held.
func (s *slots) of(p place) *taking { return s.taken[s.names[p]] }

// settled says that an Enter of p has been answered: p is in line.
func (s *slots) settled(p place) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.of(p); t != nil {
		t.sure = true
	}
}

// parts reports whether a delete of p was sent that may still arrive.
func (s *slots) parts(p place) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.of(p)
	return t != nil && t.deletes > 0
}

// parting returns the name of a claim whose key is about to be deleted, whatever it holds.
// It returns "" if that may be something else than the claim: one that lingers, or comes late.
func (s *slots) parting(p place) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.of(p)
	if t == nil || !t.sure || t.doubt || !t.until.IsZero() {
		return ""
	}
	t.deletes++
	return s.names[p]
}

// parted says that a delete has been answered.
func (s *slots) parted(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.taken[name]; t != nil { // else it is nobody's any more
		t.deletes--
	}
}

// doubt says that an Enter of p has no answer, and may still arrive.
func (s *slots) doubt(p place, while time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.of(p); t != nil {
		t.doubt = true
		s.rest(t, while)
	}
}

// collided says that a claim of somebody else has the name of p: one that was given up, and
// arrived after all. From now on all names are others. It returns false if p must not get
// another one.
func (s *slots) collided(p place) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.of(p); t != nil && t.doubt {
		return false
	}
	s.forget(s.names[p])
	s.retag()
	return true
}

// free says that p is not in line, and that no Enter of it can come in.
func (s *slots) free(p place) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(s.names[p])
}

// gone says that p is not in line now. If an Enter of it may still arrive, it keeps its
// name for a while.
func (s *slots) gone(p place, while time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.of(p); t != nil && t.doubt {
		s.rest(t, while)
		return
	}
	s.forget(s.names[p])
}

// keep says that something of p may be there for a while, and nobody asks for it any more.
func (s *slots) keep(p place, while time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.of(p); t != nil {
		s.rest(t, while)
	}
}

// rest leaves a name to its claim for a while, though nobody asks for it. s.mu is held.
func (s *slots) rest(t *taking, while time.Duration) {
	if t.until.IsZero() {
		if s.idle >= mostIdle {
			for other, t := range s.taken {
				if !t.until.IsZero() {
					s.forget(other) // it costs a collision at most
				}
			}
		}
		s.idle++
	}
	t.until = time.Now().Add(while)
}

// mostIdle bounds how many names are remembered that nobody asks for.
const mostIdle = 1 << 16

// forget lets a name go. If a delete of it may still arrive, nobody has it again: from now
// on all names are others. s.mu is held.
func (s *slots) forget(name string) {
	t := s.taken[name]
	if t == nil {
		return
	}
	if t.deletes > 0 && strings.Contains(name, s.tag) {
		s.retag()
	}
	if !t.until.IsZero() {
		s.idle--
	}
	delete(s.taken, name)
	delete(s.names, t.by)
}

// own is the read for a claim: of its key, or of those that may be it, if its name is not
// known. rev is the revision that made it, or 0 if that is not known.
func (l lineKeys) own(name string, rev int64) clientv3.Op {
	if name != "" {
		return clientv3.OpGet(name)
	}
	if rev > 0 {
		return l.claims().all(clientv3.WithMinCreateRev(rev), clientv3.WithMaxCreateRev(rev))
	}
	return l.claims().all()
}

// pick finds the claim with that id among what own has read, or nil.
func pick(kvs []*keyValue, id string) *keyValue {
	usual := []byte(preamble + `"id":"` + id + `"`)
	for _, kv := range kvs {
		if bytes.HasPrefix(kv.Value, usual) {
			return kv
		}
		var r struct {
			ID string `json:"id"`
		}
		if json.Unmarshal(kv.Value, &r) == nil && r.ID == id {
			return kv
		}
	}
	return nil
}

// ownIn is pick in one answer of a transaction.
func ownIn(answer *clientv3.TxnResponse, op int, id string) *keyValue {
	return pick(answer.Responses[op].GetResponseRange().Kvs, id)
}
