package quorumlock

import (
	"errors"
	"strconv"
	"sync"

	"github.com/fencelock/fencelock/driver"
)

// name is what makes a claim one claim.
type name struct{ key, id string }

// place is where a claim stands on one node, as far as this Backend knows.
type place uint8

const (
	nowhere place = iota // the node has nothing of it
	inside               // the node has answered that it has it
	unsure               // it may be there, or may still arrive
	owing                // the node is to be told again to let it go; it must not be sent there
	barred               // it must not be sent there: it was laid to rest
)

// claim is what this Backend remembers of a claim while it may be on some node. Calls
// for one claim go to one node one after the other, in the order in which they were
// begun: an Enter that overtakes the Leave of the attempt before it would be undone by
// it, and would be believed.
type claim struct {
	name
	refs int           // calls that use it; guarded by Backend.mu
	turn chan struct{} // held by the Enter that is under way

	mu      sync.Mutex
	tails   []chan struct{} // closed when the last call that was begun is over, per node
	ballot  int64           // that it holds the lock with, or 0
	places  []place
	ballots []int64        // that were sent last, per node
	leaving bool           // nothing of it may be put back
	why     driver.ErrGone // why it is gone, if somebody said so
}

// use returns the claim of that name. One that is not known is taken to stand in the
// given place on every node. b.done gives it back.
func (b *Backend) use(n name, stands place) *claim {
	b.mu.Lock()
	defer b.mu.Unlock()
	cl := b.claims[n]
	if cl == nil {
		cl = &claim{name: n, turn: make(chan struct{}, 1),
			places: make([]place, len(b.nodes)), ballots: make([]int64, len(b.nodes)), tails: make([]chan struct{}, len(b.nodes))}
		for i := range b.nodes {
			cl.places[i], cl.tails[i] = stands, closed
		}
		b.claims[n] = cl
	}
	cl.refs++
	return cl
}

// known returns the claim of that name, or nil.
func (b *Backend) known(n name) *claim {
	b.mu.Lock()
	defer b.mu.Unlock()
	cl := b.claims[n]
	if cl != nil {
		cl.refs++
	}
	return cl
}

// done gives a claim back, and forgets it when there is nothing to remember.
func (b *Backend) done(cl *claim) {
	b.mu.Lock()
	defer b.mu.Unlock()
	cl.refs--
	if cl.refs == 0 && !cl.somewhere() && b.claims[cl.name] == cl {
		delete(b.claims, cl.name)
	}
}

// behind runs f on a goroutine, for cl and node i, when those that were begun before
// are over. f is told if the Backend has ended instead.
func (b *Backend) behind(cl *claim, i int, f func(ended bool)) {
	b.mu.Lock()
	cl.refs++
	b.mu.Unlock()
	over := make(chan struct{})
	cl.mu.Lock()
	before := cl.tails[i]
	cl.tails[i] = over
	cl.mu.Unlock()
	b.calls.run(func() {
		defer b.done(cl)
		defer close(over)
		select {
		case <-before:
			f(false)
		case <-b.ctx.Done():
			f(true)
		}
	})
}

// somewhere reports whether a node may have the claim.
func (cl *claim) somewhere() bool {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	for _, p := range cl.places {
		if p != nowhere && p != barred {
			return true
		}
	}
	return false
}

// at returns where the claim stands on a node.
func (cl *claim) at(i int) place {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	return cl.places[i]
}

// put notes where the claim stands on a node. What is unsure stays so until it leaves
// there: another Enter of it may be under way. From then on it may not come back.
func (cl *claim) put(i int, p place) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	was := cl.places[i]
	if was == barred || was == owing && p != barred || was == unsure && p < unsure {
		return
	}
	cl.places[i] = p
}

// sends notes the ballot that a node is asked for.
func (cl *claim) sends(i int, ballot int64) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	cl.ballots[i] = ballot
}

// standsWith reports whether what a node has of the claim is the grant with that
// ballot. It may be left from an attempt before, whose Leave is still under way: that
// one keeps others out for now, but counts for nothing.
func (cl *claim) standsWith(i int, ballot int64) bool {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	return (cl.places[i] == inside || cl.places[i] == unsure) && cl.ballots[i] == ballot
}

// goneFor notes why the claim is gone from a node, and returns what is known of that.
func (cl *claim) goneFor(err error) driver.ErrGone {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	var g driver.ErrGone
	if errors.As(err, &g) && (g.Broken || cl.why == driver.ErrGone{}) {
		cl.why = g
	}
	return cl.why
}

// leftFrom notes that a node let the claim go that it had. After a try that was not
// answered, that try may still arrive.
func (cl *claim) leftFrom(i int) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if cl.places[i] == inside {
		cl.places[i] = nowhere
	} else if cl.places[i] != nowhere {
		cl.places[i] = barred
	}
}

// holds returns the ballot with which the claim holds the lock, or 0.
func (cl *claim) holds() int64 {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	return cl.ballot
}

// hold notes that the claim holds the lock with a ballot, or not: 0.
func (cl *claim) hold(ballot int64) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	cl.ballot = ballot
}

// begin says that the claim is wanted.
func (cl *claim) begin() {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	cl.leaving = false
}

// leave says that the claim is over, and reports whether that was known already.
func (cl *claim) leave() (already bool) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	already = cl.leaving
	cl.ballot, cl.leaving = 0, true
	return already
}

func (cl *claim) isLeaving() bool {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	return cl.leaving
}

// memberID is what a claim is called on node i. It differs from node to node, so that
// two members that are one store do not take each other's claim for their own, which
// would make a majority of one.
func memberID(id string, i int) string { return id + "." + strconv.Itoa(i) }

// member returns the ticket as node i knows it.
func member(t driver.Ticket, i int) driver.Ticket {
	t.ID = memberID(t.ID, i)
	return t
}
