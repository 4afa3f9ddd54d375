package redislock

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"
)

// doubts are the claims whose Enter was sent more than once, because no answer came. A
// network may deliver the first one late, when the claim has left: so a Leave lays their ids
// to rest.
type doubts struct {
	any  atomic.Bool // most of the time there is none
	mu   sync.Mutex
	by   map[string]time.Time // id → until when
	many int                  // so many are gone through for those that are over
}

// delivery is how long a system goes on sending what a connection that was closed has not
// delivered: Linux, as it is set up, for a quarter of an hour.
const delivery = 20 * time.Minute

func (d *doubts) add(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	if d.by == nil {
		d.by = make(map[string]time.Time)
	}
	if len(d.by) >= d.many {
		maps.DeleteFunc(d.by, func(_ string, until time.Time) bool { return until.Before(now) })
		d.many = max(2*len(d.by), 1000)
	}
	d.by[id] = now.Add(delivery)
	d.any.Store(true)
}

// has reports whether id is in doubt. It stays so: a Leave may have to be sent again.
func (d *doubts) has(id string) bool {
	if !d.any.Load() {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	_, ok := d.by[id]
	return ok
}
