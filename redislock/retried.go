package redislock

import (
	"maps"
	"sync"
	"time"
)

// retriedIDs are the claims whose Enter was sent more than once, because no answer came.
// A network may deliver the first copy late, after the claim has left. So the Leave of
// such a claim writes a tombstone.
type retriedIDs struct {
	mu      sync.Mutex
	until   map[string]time.Time
	purgeAt int // at that many IDs those that are over are taken out
}

// lateDelivery is how long a system goes on sending what a closed connection has not
// delivered: Linux, by default, for a quarter of an hour.
const lateDelivery = 20 * time.Minute

func (r *retriedIDs) add(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if r.until == nil {
		r.until = make(map[string]time.Time)
	}
	if len(r.until) >= r.purgeAt {
		maps.DeleteFunc(r.until, func(_ string, until time.Time) bool { return until.Before(now) })
		r.purgeAt = max(2*len(r.until), 1000)
	}
	r.until[id] = now.Add(lateDelivery)
}

// has reports whether id was added. It stays so: a Leave may have to be sent again.
func (r *retriedIDs) has(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.until[id]
	return ok
}
