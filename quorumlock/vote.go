package quorumlock

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/ballot"
)

// vote is one ballot and what the nodes answered to it. The Enter that proposed the
// ballot counts the answers. Other goroutines use only claim, sent and failed.
type vote struct {
	*count
	claim  driver.Claim // as proposed
	sent   time.Time
	failed atomic.Bool // a node that was not asked yet need not be

	granted [maxNodes]grant             // by node; token is 0 where the claim was not granted
	busy    [maxNodes]*driver.BusyError // by node: who is in the way, or nil
	free    int                         // nodes where nobody is in the way
	taken   int                         // nodes where somebody is
	kinds   int                         // nodes where the key is of another kind
	floor   int64                       // the largest token that a node has named
	refused bool                        // a node refused the ballot itself
	late    bool                        // the caller waits for no further answer
	cut     error                       // why the caller gave up
	unsure  bool                        // an earlier vote of the same Enter may have got a majority
}

// grant is what a node has granted.
type grant struct {
	token     int64
	left, ttl time.Duration
}

// answer is what one node answered to an Enter.
type answer struct {
	node   int
	ticket driver.Ticket
	err    error
}

// newVote proposes c. It knows what an earlier vote of the same Enter has found out.
func (b *Backend) newVote(c driver.Claim, earlier *vote) *vote {
	v := &vote{count: b.newCount(c.Key), claim: c, sent: time.Now()}
	if earlier != nil {
		v.floor, v.refused = earlier.floor, earlier.refused
		v.unsure = earlier.unsure || earlier.mayHave() >= b.majority
	}
	return v
}

// add counts the answer of one node.
func (v *vote) add(a answer) {
	v.count.add(a.node, a.err)
	if a.err == nil {
		v.granted[a.node] = grant{a.ticket.Token, a.ticket.Left, a.ticket.TTL}
		v.free++
		v.floor = max(v.floor, a.ticket.Token+a.ticket.Span-1)
		return
	}
	var busy *driver.BusyError
	var ballot ballot.Error
	switch {
	case errors.As(a.err, &busy):
		v.busy[a.node] = busy
		v.taken++
		v.floor = max(v.floor, busy.Token)
	case errors.As(a.err, &ballot):
		v.free++
		v.floor, v.refused = max(v.floor, ballot.Last), true
	case errors.Is(a.err, driver.ErrKind):
		v.kinds++
	}
}

// most returns the value above 0 that most nodes have, and how many have it.
func (v *vote) most(of func(node int) int64) (value int64, n int) {
	for i := range v.errs {
		x, same := of(i), 0
		for j := range v.errs {
			if x != 0 && of(j) == x {
				same++
			}
		}
		if same > n {
			value, n = x, same
		}
	}
	return value, n
}

// winner returns the token that most nodes have granted, and how many have.
func (v *vote) winner() (token int64, n int) {
	return v.most(func(i int) int64 { return v.granted[i].token })
}

// holder describes the claim that is in the way on most nodes, and says on how many it is.
// They describe it alike if a majority counts as many others. Without a busy node it is nil.
func (v *vote) holder() (holder *driver.BusyError, nodes int, alike bool) {
	token, nodes := v.most(func(i int) int64 {
		if v.busy[i] == nil {
			return 0
		}
		return v.busy[i].Token
	})
	ahead, n := v.most(func(i int) int64 {
		if v.busy[i] == nil || v.busy[i].Token != token {
			return 0
		}
		return int64(v.busy[i].Ahead)
	})
	for _, busy := range v.busy {
		if busy != nil && busy.Token == token && int64(busy.Ahead) == ahead {
			return busy, nodes, n >= v.b.majority
		}
	}
	return nil, nodes, false
}

// lost reports whether no majority for one token is possible any more.
func (v *vote) lost() bool {
	_, n := v.winner()
	return n+len(v.errs)-v.answered < v.b.majority
}

// decided reports whether no further answer matters.
func (v *vote) decided() bool {
	switch _, n := v.winner(); {
	case n >= v.b.majority, v.answered == len(v.errs):
		return true
	case !v.lost():
		return false
	}
	// The claim is refused. What remains is what to answer.
	_, _, alike := v.holder()
	return alike || v.isGone() && !v.disputed() || v.permanent > 0
}

// ticket returns the ticket if a majority has granted one token in time.
func (v *vote) ticket() (driver.Ticket, bool) {
	token, n := v.winner()
	if n < v.b.majority {
		return driver.Ticket{}, false
	}
	t := driver.Ticket{Claim: v.claim, Token: token, Granted: true, Left: v.claim.TTL}
	t.Ballot, t.NoWait = 0, true
	for _, granted := range v.granted {
		if granted.token == token {
			// A member may grant less than it was asked for. Left counts from the sending of
			// the vote, which came before the sending to the member.
			t.Left = min(t.Left, granted.left)
			t.TTL = min(t.TTL, granted.ttl)
		}
	}
	return t, time.Since(v.sent) < validity(t.Left)
}

// retry reports whether another ballot may succeed. It is contended if several came at
// once: then a pause is due.
func (v *vote) retry() (retry, contended bool) {
	open := v.free + v.taken
	switch {
	case open < v.b.majority:
		return false, false
	case v.free >= v.b.majority:
		_, n := v.winner()
		return n < v.b.majority, false // a majority that came too late would do so again
	}
	// If the claim in the way cannot have a majority, the lock is free. Claims that came in the
	// same microsecond have one token, and what looks like one holder may be several of them.
	holder, nodes, _ := v.holder()
	return holder.Token == v.claim.Ballot || nodes+len(v.errs)-open < v.b.majority, true
}

// mayHave counts the nodes that have the claim, or may have it.
func (v *vote) mayHave() (n int) {
	for _, err := range v.errs {
		if err == nil || !definite(err) {
			n++
		}
	}
	return n
}

// refusal says why the claim was not granted.
func (v *vote) refusal() error {
	nothing := !v.unsure && v.mayHave() < v.b.majority
	_, n := v.winner()
	definitely := 0
	for i, err := range v.errs {
		switch {
		case err == nil && (v.late || n >= v.b.majority):
			v.errs[i] = errTooLate
			definitely++
		case err == nil || definite(err):
			definitely++
		}
	}
	v.acked = n
	holder, _, _ := v.holder()
	switch {
	case v.cut != nil:
		return v.cut
	case v.isGone():
		return v.why()
	case v.kinds > v.b.spare:
		return driver.ErrKind
	case v.permanent > v.b.spare:
		return driver.Permanent(v.short())
	case holder != nil && definitely >= v.b.majority:
		return holder
	case nothing:
		return driver.Refused(v.short())
	}
	return v.short()
}
