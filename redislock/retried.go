package redislock

import (
	"sync"
	"time"
)

// retriedIDs are the claims whose Enter was sent more than once, because no answer came.
// A network may deliver the first copy late, after the claim has left. So the Leave of
// such a claim writes a tombstone.
type retriedIDs struct{ ids sync.Map }

// lateDelivery is how long a system goes on sending what a closed connection has not
// delivered: Linux, by default, for a quarter of an hour.
const lateDelivery = 20 * time.Minute

func (r *retriedIDs) add(id string) {
	r.ids.Store(id, true)
	time.AfterFunc(lateDelivery, func() { r.ids.Delete(id) })
}

// has reports whether id was added. It stays so: a Leave may have to be sent again.
func (r *retriedIDs) has(id string) bool {
	_, ok := r.ids.Load(id)
	return ok
}
