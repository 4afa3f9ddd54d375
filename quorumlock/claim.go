package quorumlock

import (
	"slices"
	"strconv"
	"sync"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/driverutil"
)

// presence says whether a node has a claim, as far as this Backend knows.
type presence uint8

const (
	absent  presence = iota // the node has nothing of the claim
	present                 // the node has acknowledged the claim
	unknown                 // an Enter was not answered: it may be there, or still arrive
	barred                  // the claim must not be sent there: a Leave may still arrive, or left a tombstone
)

// claim is what this Backend remembers of a claim while a node may have it.
//
// Requests for one claim reach one node one after the other, in the order in which
// they were begun. Otherwise an Enter could overtake the Leave of the attempt before
// it: the Leave would undo the Enter, and the caller would believe in the grant.
type claim struct {
	ref  driverutil.ClaimRef
	refs int           // users; guarded by claimTable.mu
	turn chan struct{} // held by the Enter that is under way

	mu      sync.Mutex
	ballot  int64 // the token while the claim holds the lock, or 0
	leaving bool  // the claim must not be put back
	why     driver.GoneError
	nodes   []nodeClaim

	capacity, weight int64 // as asked for; 0 before the first Enter
}

// nodeClaim is the claim on one node.
type nodeClaim struct {
	presence presence
	ballot   int64         // that was sent last
	last     chan struct{} // closed when the last request begun so far is over
}

// mayBe reports whether the node may have the claim.
func (n nodeClaim) mayBe() bool { return n.presence == present || n.presence == unknown }

// claimTable holds the claims that a request uses or that a node may have.
type claimTable struct {
	mu    sync.Mutex
	byRef map[driverutil.ClaimRef]*claim
}

// open returns the claim of ref for use until release. A claim that is not in the
// table starts with the given presence on every node.
func (t *claimTable) open(ref driverutil.ClaimRef, nodes int, p presence) *claim {
	t.mu.Lock()
	defer t.mu.Unlock()
	cl := t.byRef[ref]
	if cl == nil {
		cl = &claim{ref: ref, turn: make(chan struct{}, 1), nodes: make([]nodeClaim, nodes)}
		for i := range cl.nodes {
			cl.nodes[i].presence = p
		}
		t.byRef[ref] = cl
	}
	cl.refs++
	return cl
}

// with calls f with the claim of ref, if it is in the table.
func (t *claimTable) with(ref driverutil.ClaimRef, f func(cl *claim)) {
	t.mu.Lock()
	cl := t.byRef[ref]
	if cl == nil {
		t.mu.Unlock()
		return
	}
	cl.refs++
	t.mu.Unlock()
	defer t.release(cl)
	f(cl)
}

func (t *claimTable) retain(cl *claim) {
	t.mu.Lock()
	defer t.mu.Unlock()
	cl.refs++
}

// release ends one use of cl. It forgets cl when no node may have it.
func (t *claimTable) release(cl *claim) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if cl.refs--; cl.refs == 0 && !cl.somewhere() {
		delete(t.byRef, cl.ref)
	}
}

// onNode runs request for cl on node i in the background, after the requests for cl
// that were begun there before.
func (b *Backend) onNode(cl *claim, i int, request func()) {
	b.claims.retain(cl)
	done := make(chan struct{})
	cl.mu.Lock()
	before := cl.nodes[i].last
	cl.nodes[i].last = done
	cl.mu.Unlock()
	b.runFor(b.nodes[i], func() {
		defer b.claims.release(cl)
		defer close(done)
		if before != nil {
			<-before
		}
		request()
	})
}

// somewhere reports whether a node may have the claim.
func (cl *claim) somewhere() bool {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	return slices.ContainsFunc(cl.nodes, nodeClaim.mayBe)
}

// node returns what is known of the claim on node i.
func (cl *claim) node(i int) nodeClaim {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	return cl.nodes[i]
}

// sending notes the ballot of an Enter to node i.
func (cl *claim) sending(i int, ballot int64) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	cl.nodes[i].ballot = ballot
}

// entered notes how node i answered an Enter. What is unknown stays so until a Leave,
// for an earlier Enter may still arrive.
func (cl *claim) entered(i int, err error) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	switch n := &cl.nodes[i]; {
	case n.presence == unknown || n.presence == barred:
	case err == nil:
		n.presence = present
	case definite(err):
		n.presence = absent
	default:
		n.presence = unknown
	}
}

// left notes how node i answered a Leave. An Enter of unknown outcome may still arrive,
// so the claim is not sent there again.
func (cl *claim) left(i int, err error, tombstone bool) {
	if leaveOver(err) {
		_ = cl.goneBecause(err)
	} else {
		tombstone = true
	}
	cl.mu.Lock()
	defer cl.mu.Unlock()
	switch n := &cl.nodes[i]; {
	case tombstone:
		n.presence = barred
	case n.presence == present:
		n.presence = absent
	case n.presence != absent:
		n.presence = barred
	}
}

// goneBecause notes why the claim is gone from a node, and returns the best reason so far.
func (cl *claim) goneBecause(err error) driver.GoneError {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	cl.why = reasonGone(cl.why, err)
	return cl.why
}

// state returns the ballot with which the claim holds the lock, or 0, and whether the
// claim is over.
func (cl *claim) state() (held int64, leaving bool) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	return cl.ballot, cl.leaving
}

// setHeld notes the ballot with which the claim holds the lock, or 0.
func (cl *claim) setHeld(ballot int64) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	cl.ballot = ballot
}

// enter notes that the claim is wanted as c. The members are not asked if a claim of another
// weight has the ID: their refusals would be a vote that failed, and take that claim away.
func (cl *claim) enter(c *driver.Claim) error {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if cl.weight > 0 {
		if err := driverutil.CheckFound(c.Capacity, c.Weight, cl.capacity, cl.weight); err != nil {
			return err
		}
	}
	cl.capacity, cl.weight, cl.leaving = c.Capacity, c.Weight, false
	return nil
}

// leave notes that the claim is over. It reports whether it was over already.
func (cl *claim) leave() (already bool) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	already = cl.leaving
	cl.ballot, cl.leaving = 0, true
	return already
}

// memberID is the ID of a claim on node i. It differs from node to node: two members
// that are one store would otherwise take each other's claim for their own and make a
// majority of one store.
func memberID(id string, i int) string { return id + "." + strconv.Itoa(i) }

// onMember returns the ticket as node i knows it.
func onMember(t driver.Ticket, i int) driver.Ticket {
	t.ID = memberID(t.ID, i)
	return t
}
