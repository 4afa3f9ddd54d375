package quorumlock

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// vote is one ballot and what the nodes answered to it. The Enter that proposed the
// ballot counts the answers. Other goroutines use only claim, sent and failed.
type vote struct {
	b      *Backend
	claim  driver.Claim // as proposed
	sent   time.Time
	failed atomic.Bool // a node that was not asked yet need not be

	answers []answer // by node
	floor   int64    // the largest token that a node has named
	refused bool     // a node refused the ballot itself
	late    bool     // the caller waits for no further answer
	cut     error    // why the caller gave up
}

// answer is what one node answered to an Enter.
type answer struct {
	node   int
	came   bool
	ticket driver.Ticket
	err    error
}

func (a *answer) granted() bool   { return a.came && a.err == nil && a.ticket.Granted }
func (a *answer) gone() bool      { return driver.Gone(a.err) }
func (a *answer) permanent() bool { return permanent(a.err) }
func (a *answer) twin() bool      { return errors.Is(a.err, errTwins) }
func (a *answer) otherKind() bool { return errors.Is(a.err, driver.ErrKind) }

// busy returns who is in the way on the node, or nil.
func (a *answer) busy() *driver.BusyError {
	var busy *driver.BusyError
	if a.err == nil || !errors.As(a.err, &busy) {
		return nil
	}
	return busy
}

// add counts the answer of one node.
func (v *vote) add(a answer) {
	v.answers[a.node] = a
	var ballot driver.ErrBallot
	switch busy := a.busy(); {
	case a.err == nil:
		v.floor = max(v.floor, a.ticket.Token+a.ticket.Span-1)
	case busy != nil:
		v.floor = max(v.floor, busy.Token)
	case errors.As(a.err, &ballot):
		v.floor, v.refused = max(v.floor, ballot.Last), true
	}
}

// learn takes over what an earlier vote of the same Enter has found out.
func (v *vote) learn(earlier *vote) {
	if earlier != nil {
		v.floor = max(v.floor, earlier.floor)
		v.refused = v.refused || earlier.refused
	}
}

// count counts the answers that f accepts.
func (v *vote) count(f func(a *answer) bool) int {
	n := 0
	for i := range v.answers {
		if a := &v.answers[i]; a.came && f(a) {
			n++
		}
	}
	return n
}

func (v *vote) pending() int { return len(v.answers) - v.count(func(*answer) bool { return true }) }

// most returns the number above 0 that f finds most often, and how often.
func (v *vote) most(f func(a *answer) int64) (value int64, n int) {
	for i := range v.answers {
		x := f(&v.answers[i])
		if x == 0 || x == value {
			continue
		}
		if c := v.count(func(a *answer) bool { return f(a) == x }); c > n {
			value, n = x, c
		}
	}
	return value, n
}

// granted returns the token that most nodes have granted, and how many have.
func (v *vote) granted() (token int64, n int) {
	return v.most(func(a *answer) int64 {
		if !a.granted() {
			return 0
		}
		return a.ticket.Token
	})
}

// holder describes the claim that is in the way on most nodes, as most of them describe
// it. It returns nil if no node is busy, and on how many nodes it is in the way.
func (v *vote) holder() (holder *driver.BusyError, nodes int) {
	token, nodes := v.most(func(a *answer) int64 {
		if busy := a.busy(); busy != nil {
			return busy.Token
		}
		return 0
	})
	ahead, _ := v.most(func(a *answer) int64 {
		if busy := a.busy(); busy != nil && busy.Token == token {
			return int64(busy.Ahead)
		}
		return 0
	})
	for i := range v.answers {
		if busy := v.answers[i].busy(); busy != nil && busy.Token == token && (int64(busy.Ahead) == ahead || ahead == 0) {
			return busy, nodes
		}
	}
	return nil, 0
}

// blocking is how many nodes can prevent a majority.
func (v *vote) blocking() int { return len(v.answers) - v.b.majority + 1 }

// lost reports whether no majority for one token is possible any more.
func (v *vote) lost() bool {
	_, n := v.granted()
	return n+v.pending() < v.b.majority
}

// decided reports whether no further answer matters.
func (v *vote) decided() bool {
	switch _, n := v.granted(); {
	case n >= v.b.majority, v.pending() == 0, v.cut != nil, v.late:
		return true
	case !v.lost():
		return false
	}
	// The claim is refused. What remains is what to answer.
	return v.holderIsKnown() || v.count((*answer).gone) >= v.blocking() || v.count((*answer).permanent) > 0
}

// holderIsKnown reports whether a majority says the same of who is in the way.
func (v *vote) holderIsKnown() bool {
	holder, _ := v.holder()
	return holder != nil && v.count(func(a *answer) bool {
		other := a.busy()
		return other != nil && other.Token == holder.Token && other.Ahead == holder.Ahead
	}) >= v.b.majority
}

// ticket returns the ticket if a majority has granted one token in time.
func (v *vote) ticket() (driver.Ticket, bool) {
	token, n := v.granted()
	if n < v.b.majority || v.count((*answer).twin) > 0 {
		return driver.Ticket{}, false
	}
	t := driver.Ticket{Claim: v.claim, Token: token, Granted: true, Left: v.claim.TTL}
	t.Ballot, t.NoWait = 0, true
	for i := range v.answers {
		a := &v.answers[i]
		if !a.came || a.err != nil || a.ticket.Token != token {
			continue
		}
		// A member may grant less than it was asked for. Left counts from the sending of
		// the vote, which came before the sending to the member.
		t.Left = min(t.Left, a.ticket.Left)
		t.TTL = min(t.TTL, a.ticket.TTL)
	}
	return t, time.Since(v.sent) < validity(t.Left)
}

// retry reports whether another ballot may succeed. It is contended if several came at
// once: then a pause is due.
func (v *vote) retry() (retry, contended bool) {
	busy := v.count(func(a *answer) bool { return a.busy() != nil })
	open := busy + v.count(func(a *answer) bool { return a.err == nil || errors.As(a.err, new(driver.ErrBallot)) })
	if open < v.b.majority || v.count((*answer).twin) > 0 {
		return false, false
	}
	if open-busy >= v.b.majority {
		_, n := v.granted()
		return n < v.b.majority, false // a majority that came too late would do so again
	}
	// If the claim in the way cannot have a majority, the lock is free.
	_, nodes := v.holder()
	return nodes+len(v.answers)-open < v.b.majority, true
}

// refusal says why the claim was not granted.
func (v *vote) refusal() error {
	if v.cut != nil {
		return v.cut
	}
	var why driver.ErrGone
	for i := range v.answers {
		if a := &v.answers[i]; a.twin() {
			return a.err
		}
		why = reasonGone(why, v.answers[i].err)
	}
	holder, _ := v.holder()
	answered := v.count(func(a *answer) bool { return a.err == nil || definite(a.err) })
	switch {
	case v.count((*answer).gone) >= v.blocking():
		return why
	case v.count((*answer).otherKind) >= v.blocking():
		return driver.ErrKind
	case v.count((*answer).permanent) >= v.blocking():
		return &driver.PermanentError{Err: v.short()}
	case holder != nil && answered >= v.b.majority:
		return holder
	}
	return v.short()
}

// short says what each node that did not grant has answered.
func (v *vote) short() error {
	_, n := v.granted()
	e := &shortError{key: v.claim.Key, have: n, need: v.b.majority, of: len(v.answers)}
	for i := range v.answers {
		switch a := &v.answers[i]; {
		case !a.came:
			e.add(v.b.nodes[i].name, errNoAnswer)
		case a.err != nil:
			e.add(v.b.nodes[i].name, a.err)
		case v.late || n >= v.b.majority:
			e.add(v.b.nodes[i].name, errTooLate)
		}
	}
	return e
}
