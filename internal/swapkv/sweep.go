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

// written are the leases of which this process may have written the object. A claim mostly leaves by the line as it was
// seen before its first renewal.
type written struct {
	leases map[string]writtenLease
	most   int // how many there may be until those are left out that are over
}

type writtenLease struct {
	end     int64  // unless it is renewed, by the clock of the process
	version string // the last one that is known to be of a lease in line
}

// writes notes that the object of a lease is about to be written.
func (s *Store) writes(lease string, ttl time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, w := s.clock.Now(), &s.written
	if len(w.leases) >= w.most { // others may have swept them
		maps.DeleteFunc(w.leases, func(_ string, l writtenLease) bool { return l.end < now })
		w.most = 2*len(w.leases) + fewLeases
	}
	w.leases[lease] = writtenLease{now + int64(ttl), w.leases[lease].version}
}

const fewLeases = 256

// wrote reports whether this process may have written the object of a lease, which has ended now. It says so once.
func (s *Store) wrote(lease string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, wrote := s.written.leases[lease]
	delete(s.written.leases, lease)
	return wrote
}

// knows notes a version that is of a lease in line, and known returns it.
func (s *Store) knows(lease, version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l, ok := s.written.leases[lease]; ok {
		l.version = version
		s.written.leases[lease] = l
	}
}

func (s *Store) known(lease string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.written.leases[lease].version
}
