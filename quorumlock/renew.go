package quorumlock

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// Renew starts the leases of ts again on all nodes, with one request each. A claim is
// alive if a majority has renewed it. A claim that is alive is sent back, in the
// background, to nodes that have lost it: a long hold must not erode as nodes restart
// one by one.
func (b *Backend) Renew(ctx context.Context, ts []driver.Ticket) []error {
	if err := b.begin(ctx); err != nil {
		return slices.Repeat([]error{err}, len(ts))
	}
	defer b.work.done()
	r := newRenewal(b, ts)
	answers := make(chan renewed, len(b.nodes))
	for i := range b.nodes {
		b.work.run(func() { answers <- r.renewNode(i) })
	}
	var cut error
	for cut == nil && !r.decided() {
		select {
		case a := <-answers:
			r.add(a)
		case <-ctx.Done():
			cut = ctx.Err()
		case <-b.closing.Done():
			cut = driver.ErrClosed
		}
	}
	for cut != nil && len(answers) > 0 {
		r.add(<-answers) // it came in time, and select took the other case
	}
	errs := r.results(cut)
	if r.answered < len(b.nodes) {
		b.work.run(func() {
			for r.answered < len(b.nodes) {
				r.add(<-answers)
			}
		})
	}
	return errs
}

// renewal is one Renew of many claims. One goroutine counts the answers: the caller of
// Renew until it returns, and then one in the background.
type renewal struct {
	b        *Backend
	ts       []driver.Ticket
	sent     time.Time
	answered int       // nodes
	answers  [][]error // by claim and node
	alive    []int     // nodes that have renewed it, by claim
	gone     []int     // nodes that have lost it, by claim
}

// renewed is what one node answered, by claim.
type renewed struct {
	node int
	errs []error
}

func newRenewal(b *Backend, ts []driver.Ticket) *renewal {
	r := &renewal{
		b:       b,
		ts:      slices.Clone(ts), // it outlives the call
		sent:    time.Now(),
		answers: make([][]error, len(ts)),
		alive:   make([]int, len(ts)),
		gone:    make([]int, len(ts)),
	}
	for n := range ts {
		r.answers[n] = slices.Repeat([]error{errNoAnswer}, len(b.nodes))
	}
	return r
}

// renewNode renews on one node.
func (r *renewal) renewNode(i int) renewed {
	ts := make([]driver.Ticket, len(r.ts))
	for n, t := range r.ts {
		ts[n] = onMember(t, i)
	}
	return renewed{i, r.b.nodes[i].Renew(r.b.callContext(), ts)}
}

// add counts the answer of one node.
func (r *renewal) add(a renewed) {
	r.answered++
	for n := range r.ts {
		if n >= len(a.errs) {
			return
		}
		err := r.checkGrant(n, a.node, a.errs[n])
		r.answers[n][a.node] = err
		switch {
		case err == nil:
			if r.alive[n]++; r.alive[n] == r.b.majority {
				for i := range r.b.nodes {
					r.putBack(n, i)
				}
			}
		case driver.Gone(err):
			r.gone[n]++
			if r.alive[n] >= r.b.majority {
				r.putBack(n, a.node)
			}
		}
	}
}

// checkGrant rejects the renewal of something that is not the grant.
func (r *renewal) checkGrant(n, i int, err error) error {
	if err != nil {
		return err
	}
	t := &r.ts[n]
	cl := r.b.claims.find(t.Ref())
	if cl == nil {
		return nil
	}
	defer r.b.claims.release(cl)
	switch {
	case cl.isLeaving():
		return errLeft
	case t.Token != 0 && !cl.granted(i, t.Token):
		return errLeftover
	}
	return nil
}

// leaving reports whether a Leave has begun beside this Renew. Its nodes answer the two
// in any order, so neither the acks nor the losses need be a majority.
func (r *renewal) leaving(n int) bool {
	cl := r.b.claims.find(r.ts[n].Ref())
	if cl == nil {
		return false
	}
	defer r.b.claims.release(cl)
	return cl.isLeaving()
}

func (r *renewal) lost(n int) bool { return r.gone[n] > len(r.b.nodes)-r.b.majority }

// decided reports whether every claim is alive or lost, or all nodes have answered.
func (r *renewal) decided() bool {
	if r.answered == len(r.b.nodes) {
		return true
	}
	for n := range r.ts {
		if r.alive[n] < r.b.majority && !r.lost(n) {
			return false
		}
	}
	return true
}

// results says what became of each claim.
func (r *renewal) results(cut error) []error {
	errs := make([]error, len(r.ts))
	for n := range r.ts {
		switch {
		case r.alive[n] >= r.b.majority:
		case r.lost(n):
			errs[n] = r.why(n)
			r.removeRest(n)
		case cut != nil:
			errs[n] = cut
		case r.leaving(n):
			errs[n] = errLeft
		default:
			short := &shortError{key: r.ts[n].Key, have: r.alive[n], need: r.b.majority, of: len(r.b.nodes)}
			for i, err := range r.answers[n] {
				if err != nil {
					short.add(r.b.nodes[i].name, err)
				}
			}
			errs[n] = short
		}
	}
	return errs
}

// why returns the best reason for which a claim is gone.
func (r *renewal) why(n int) (why driver.ErrGone) {
	for _, err := range r.answers[n] {
		why = reasonGone(why, err)
	}
	return why
}

// putBack sends a claim that a majority has just renewed to a node that has lost it.
func (r *renewal) putBack(n, i int) {
	var gone driver.ErrGone
	if !errors.As(r.answers[n][i], &gone) || gone.Broken {
		return
	}
	t := r.ts[n]
	cl := r.b.claims.find(t.Ref())
	if cl == nil {
		return // another Backend entered it
	}
	defer r.b.claims.release(cl)
	r.b.onNode(cl, i, func() { r.b.reenterNode(cl, i, t, r.sent) })
}

// reenterNode puts a claim back on one node. The node counts as a vote from the next
// renewal on.
func (b *Backend) reenterNode(cl *claim, i int, t driver.Ticket, sent time.Time) {
	left := validity(t.TTL) - time.Since(sent)
	if cl.presence(i) == barred || cl.isLeaving() || cl.heldBallot() != t.Token || left <= 0 {
		return
	}
	c := t.Claim
	c.ID, c.Ballot, c.NoWait = memberID(c.ID, i), t.Token, true
	call, cancel := context.WithTimeout(b.ctx, min(left, callTimeout))
	defer cancel()
	cl.sending(i, c.Ballot)
	_, err := b.nodes[i].Reenter(call, c)
	cl.entered(i, err)
}

// removeRest takes a lost claim away from the nodes that still have it: there it keeps
// others out and nobody in. Only a Renew that tells the holder does so. One that was cut
// short may find the loss later, from answers that are no longer true, while the holder
// still believes.
func (r *renewal) removeRest(n int) {
	t := r.ts[n]
	cl := r.b.claims.find(t.Ref())
	if cl == nil {
		return
	}
	defer r.b.claims.release(cl)
	if cl.leave() {
		return // a Leave is under way and does it
	}
	_ = cl.goneBecause(r.why(n))
	acks := make(chan ack, len(r.b.nodes)) // nobody waits for them
	t.Token = max(t.Token, 1)
	for i := range r.b.nodes {
		r.b.onNode(cl, i, func() { r.b.leaveNode(cl, i, t, acks) })
	}
}
