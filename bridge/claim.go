package bridge

import (
	"cmp"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/driverutil"
	"github.com/fencelock/fencelock/internal/limit"
)

// presence says whether a claim is in the line of the new store.
type presence int

const (
	absent  presence = iota // nothing was sent
	unsure                  // an Enter was sent and has no answer yet
	present                 // an Enter was answered
)

// claim holds what this process knows of one claim.
type claim struct {
	driver.Claim // as it was entered first

	mu      sync.Mutex
	oldLeft bool      // it has left the old store
	inOld   bool      // the old store has granted it
	token   int64     // in the old store; 0 before its answer
	mark    string    // of the old store, at the grant
	ends    time.Time // no earlier ends the lease in the old store

	raised int64 // the old store numbers above this, see raiseOld

	inNew    presence
	newToken int64
	newLeft  bool // it has left the new store
	held     bool // both have granted it
	over     bool // it leaves, or is lost: it does not enter the new store any more
	barred   bool // it has a tombstone: no Enter that is under way may bring it back
}

// room is how many more tokens than it asks for a claim that shares its key reserves in the old
// store. Several readers are granted by the old store at once and reach the new store in any
// order: one that comes behind a later one gets a token above that of the later one. The next
// writer of the old line must still have a larger token.
const room = 1000

// spanInOld is how many tokens a claim with span tokens reserves in the old store.
func spanInOld(d *driver.Claim, span int64) int64 {
	if driverutil.Exclusive(d) {
		return span
	}
	return min(span+room, limit.Span)
}

// halvesLocked returns the tickets of the claim as the two stores have it.
func (c *claim) halvesLocked(t driver.Ticket) (old, new driver.Ticket) {
	old, new = t, t
	if c == nil {
		return old, new
	}
	old.Token, old.Span = cmp.Or(c.token, t.Token), spanInOld(&c.Claim, t.Span)
	new.Token = cmp.Or(c.newToken, t.Token)
	return old, new
}

// table has the claims that this process has entered and not left.
type table struct {
	mu      sync.Mutex
	byRef   map[driverutil.ClaimRef]*claim
	sweepAt int
}

// open returns the claim of c, and whether it is new.
func (t *table) open(c *driver.Claim) (cl *claim, isNew bool) {
	ref := driverutil.Ref(c.Key, c.ID)
	t.mu.Lock()
	defer t.mu.Unlock()
	if cl = t.byRef[ref]; cl != nil {
		return cl, false
	}
	if len(t.byRef) >= t.sweepAt {
		t.sweep()
	}
	cl = &claim{Claim: *c}
	t.byRef[ref] = cl
	return cl, true
}

// find returns the claim of a ticket, or nil.
func (t *table) find(k *driver.Ticket) *claim {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byRef[driverutil.Ref(k.Key, k.ID)]
}

// bar returns the claim of a ticket that a Leave bars, or nil.
func (t *table) bar(k *driver.Ticket) *claim {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.byRef[driverutil.Ref(k.Key, k.ID)]
	if c != nil {
		c.bar()
	}
	return c
}

func (t *table) drop(c *driver.Claim) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.byRef, driverutil.Ref(c.Key, c.ID))
}

// abandon drops a claim of which an Enter has left nothing, unless it is barred: a repeated Enter would begin one that
// is not.
func (t *table) abandon(c *driver.Claim) {
	ref := driverutil.Ref(c.Key, c.ID)
	t.mu.Lock()
	defer t.mu.Unlock()
	if cl := t.byRef[ref]; cl != nil && !cl.isBarred() {
		delete(t.byRef, ref)
	}
}

// forgetAfter is how long after its lease a claim is remembered that nobody has left.
const forgetAfter = time.Hour

// sweep forgets claims whose lease has ended long ago.
func (t *table) sweep() {
	now := time.Now()
	for ref, c := range t.byRef {
		c.mu.Lock()
		if !c.ends.IsZero() && now.Sub(c.ends) > forgetAfter {
			delete(t.byRef, ref)
		}
		c.mu.Unlock()
	}
	t.sweepAt = max(1024, 2*len(t.byRef))
}
