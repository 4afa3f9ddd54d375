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
	ballot  int64          // that it holds the lock with, or 0
	spots   []spot         // per node
	leaving bool           // nothing of it may be put back
	why     driver.ErrGone // why it is gone, if somebody said so
}

// spot is what is remembered of a claim on one node.
type spot struct {
	id     string // what the node knows it by
	place  place
	busy   bool      // a call for it is under way
	ballot int64     // that was sent last
	next   []*errand // what follows when that call is over
}

// errand is what is to be done for a claim on one node. do is told if the Backend has
// ended instead.
type errand struct {
	b  *Backend
	cl *claim
	i  int
	do func(i int, ended bool)
}

// use returns the claim of that name. One that is not known is taken to stand in the
// given place on every node. b.done gives it back.
func (b *Backend) use(n name, stands place) *claim {
	b.mu.Lock()
	defer b.mu.Unlock()
	cl := b.claims[n]
	if cl == nil {
		cl = &claim{name: n, turn: make(chan struct{}, 1), spots: make([]spot, len(b.nodes))}
		ids := memberIDs(n.id, len(b.nodes))
		for i := range cl.spots {
			one := len(ids) / len(cl.spots)
			cl.spots[i].id, cl.spots[i].place = ids[i*one:(i+1)*one], stands
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

// behind does something for cl on node i, on a goroutine, when what was begun there
// before is over.
func (b *Backend) behind(cl *claim, i int, do func(i int, ended bool)) {
	b.each(cl, []errand{{b, cl, i, do}})
}

// everywhere does something for cl on all nodes at once, as behind does on one.
func (b *Backend) everywhere(cl *claim, do func(i int, ended bool)) {
	all := make([]errand, len(b.nodes))
	for i := range all {
		all[i] = errand{b, cl, i, do}
	}
	b.each(cl, all)
}

func (b *Backend) each(cl *claim, all []errand) {
	b.mu.Lock()
	cl.refs += len(all)
	b.mu.Unlock()
	for i := range all {
		if e := &all[i]; cl.first(e) {
			b.calls.run(e)
		}
	}
}

// first reports whether nothing is under way where e is to be done. If there is, e
// follows it.
func (cl *claim) first(e *errand) bool {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	s := &cl.spots[e.i]
	if s.busy {
		s.next = append(s.next, e)
		return false
	}
	s.busy = true
	return true
}

// run does e, and what has come behind it meanwhile.
func (e *errand) run() {
	for e != nil {
		e.do(e.i, e.b.ctx.Err() != nil)
		next := e.follower()
		e.b.done(e.cl)
		e = next
	}
}

// follower returns what comes after e on its node, or nil.
func (e *errand) follower() *errand {
	e.cl.mu.Lock()
	defer e.cl.mu.Unlock()
	s := &e.cl.spots[e.i]
	if len(s.next) == 0 {
		s.busy, s.next = false, nil
		return nil
	}
	next := s.next[0]
	s.next = s.next[1:]
	return next
}

// somewhere reports whether a node may have the claim.
func (cl *claim) somewhere() bool {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	for i := range cl.spots {
		if p := cl.spots[i].place; p != nowhere && p != barred {
			return true
		}
	}
	return false
}

// at returns where the claim stands on a node.
func (cl *claim) at(i int) place {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	return cl.spots[i].place
}

// put notes where the claim stands on a node. What is unsure stays so until it leaves
// there: another Enter of it may be under way. From then on it may not come back.
func (cl *claim) put(i int, p place) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	was := cl.spots[i].place
	if was == barred || was == owing && p != barred || was == unsure && p < unsure {
		return
	}
	cl.spots[i].place = p
}

// sends notes the ballot that a node is asked for.
func (cl *claim) sends(i int, ballot int64) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	cl.spots[i].ballot = ballot
}

// standsWith reports whether what a node has of the claim is the grant with that
// ballot. It may be left from an attempt before, whose Leave is still under way: that
// one keeps others out for now, but counts for nothing.
func (cl *claim) standsWith(i int, ballot int64) bool {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	return (cl.spots[i].place == inside || cl.spots[i].place == unsure) && cl.spots[i].ballot == ballot
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
	if cl.spots[i].place == inside {
		cl.spots[i].place = nowhere
	} else if cl.spots[i].place != nowhere {
		cl.spots[i].place = barred
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

// memberIDs are those of all nodes, one behind the other. There are at most nine.
func memberIDs(id string, nodes int) string {
	all := make([]byte, 0, nodes*(len(id)+2))
	for i := range nodes {
		all = append(append(all, id...), '.', '0'+byte(i))
	}
	return string(all)
}

// member returns the ticket as node i knows it.
func member(t driver.Ticket, i int) driver.Ticket {
	t.ID = memberID(t.ID, i)
	return t
}
