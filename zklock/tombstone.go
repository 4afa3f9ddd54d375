package zklock

import (
	"time"

	"github.com/fencelock/fencelock/driver"
)

// tombstone keeps the ID of a claim out of its line. It is kept in memory: only this
// Backend can have sent an Enter of the ID, and the barrier of its session settles those
// that are under way.
type tombstone struct {
	gone driver.ErrGone
	end  time.Time
}

// entomb keeps ref out of its line for d. What an operator said is kept over what others
// say.
func (cs *claims) entomb(ref driver.ClaimRef, gone driver.ErrGone, d time.Duration) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	end := time.Now().Add(d)
	stone := cs.tombstones[ref]
	if stone == nil {
		cs.tombstones[ref] = &tombstone{gone, end}
		cs.clearLater(ref, d)
		return
	}
	if !stone.gone.Broken {
		stone.gone = gone
	}
	if end.After(stone.end) {
		stone.end = end
	}
}

// clearLater removes the tombstone of ref when its time is over.
func (cs *claims) clearLater(ref driver.ClaimRef, d time.Duration) {
	time.AfterFunc(d, func() {
		cs.mu.Lock()
		defer cs.mu.Unlock()
		if left := time.Until(cs.tombstones[ref].end); left > 0 {
			cs.clearLater(ref, left)
			return
		}
		delete(cs.tombstones, ref)
	})
}

// tombstone says why c may not enter, or returns nil.
func (c *claim) tombstone() *driver.ErrGone {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	if stone := c.of.tombstones[c.ClaimRef]; stone != nil {
		gone := stone.gone
		return &gone
	}
	return nil
}
