package etcdlock

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"strconv"
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
// The names of one Backend differ from those of all others. That no two claims are given
// the same one at the same time is compared by each transaction that puts a claim; what is
// noted here only says which name is worth a try.
type slots struct {
	mu    sync.Mutex
	tag   string // what the names begin with
	names map[place]string
	taken map[string]time.Time // names, until when; zero for as long as they are in names
}

func (s *slots) init() {
	s.tag = rand.Text()[:16]
	s.names = make(map[place]string)
	s.taken = make(map[string]time.Time)
}

// name returns the name of a claim that this Backend has put, or may have put.
func (s *slots) name(p place) (name string, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name, known = s.names[p]
	return name, known
}

// take returns the name under which a claim is, or is to be put.
func (s *slots) take(line lineKeys, c *driver.Claim) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := place{c.Key, c.ID}
	if name, known := s.names[p]; known {
		return name
	}
	begins := string(line) + string(classOf(c)) + s.tag
	for n := 0; ; n++ {
		name := begins + strconv.Itoa(n)
		until, taken := s.taken[name]
		if !taken || !until.IsZero() && until.Before(time.Now()) {
			s.names[p], s.taken[name] = name, time.Time{}
			return name
		}
	}
}

// collided says that a claim of somebody else has the name of p: one that was given up, and
// arrived after all. From now on all names are others.
func (s *slots) collided(p place) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.taken, s.names[p])
	delete(s.names, p)
	s.tag = rand.Text()[:16]
}

// free says that a claim has left, or is not going to be put. Something may stay under its
// name for a while.
func (s *slots) free(p place, while time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name, known := s.names[p]
	if !known {
		return
	}
	delete(s.names, p)
	if while <= 0 {
		delete(s.taken, name)
		return
	}
	if len(s.taken) >= mostTaken {
		clear(s.taken) // who has a name keeps it; the others cost a collision at most
	}
	s.taken[name] = time.Now().Add(while)
}

// mostTaken bounds how many names are remembered.
const mostTaken = 1 << 16

// own is the read for the claim c: of its key, or of those that may be it, if another
// Backend has put it. rev is the revision that made it, or 0 if that is not known.
func (b *Backend) own(line lineKeys, c *driver.Claim, rev int64) clientv3.Op {
	if name, known := b.slots.name(place{c.Key, c.ID}); known {
		return clientv3.OpGet(name)
	}
	if rev > 0 {
		return line.claims().all(clientv3.WithMinCreateRev(rev), clientv3.WithMaxCreateRev(rev))
	}
	return line.claims().all()
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
