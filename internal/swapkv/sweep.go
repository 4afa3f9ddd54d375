package swapkv

import (
	"maps"
	"slices"
	"time"
)

// sweep removes the messages that next has done, and the objects of the leases that it has ended.
func (s *Store) sweep(key string, v, next *seen) {
	box, ok := s.Client.(Mailbox)
	if !ok {
		return
	}
	for _, m := range v.Messages[:len(v.Messages)-len(next.Messages)] {
		box.Remove(m.Name)
	}
	for _, ref := range v.Leases {
		stays := slices.ContainsFunc(next.Leases, func(r leaseRef) bool { return r.Lease == ref.Lease })
		if !stays && (s.wrote(ref.Lease) || v.Renewed[ref.Lease].Version != "") {
			box.Remove(s.Client.LeaseName(key, ref.Lease))
		}
	}
}

// written are the leases of which this process may have written the object, and when each ends unless it is renewed, by
// the clock of the process. A claim mostly leaves by the line as it was seen before its first renewal.
type written struct {
	ends map[string]int64
	most int // how many there may be until those are left out that are over
}

// writes notes that the object of a lease is about to be written, if objects are removed.
func (s *Store) writes(lease string, ttl time.Duration) (removes bool) {
	if _, removes = s.Client.(Mailbox); !removes {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now, w := s.clock.Now(), &s.written
	if len(w.ends) >= w.most { // others may have swept them
		maps.DeleteFunc(w.ends, func(_ string, end int64) bool { return end < now })
		w.most = 2*len(w.ends) + fewLeases
	}
	w.ends[lease] = now + int64(ttl)
	return true
}

const fewLeases = 256

// wrote reports whether this process may have written the object of a lease, which has ended now. It says so once.
func (s *Store) wrote(lease string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, wrote := s.written.ends[lease]
	delete(s.written.ends, lease)
	return wrote
}
