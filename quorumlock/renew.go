package quorumlock

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/driverutil"
)

// Renew starts the leases of ts again on all nodes, with one request each. A claim is
// alive if a majority has renewed it. A claim that is alive is sent back, in the
// background, to nodes that have lost it: a long hold must not erode as nodes restart
// one by one.
func (b *Backend) Renew(ctx context.Context, ts []driver.Ticket) []error {
	if err := b.begin(ctx); err != nil {
		return slices.Repeat([]error{err}, len(ts))
	}
	defer b.done()
	r := newRenewal(b, ts)
	answers := make(chan renewed, len(b.nodes))
	for i, n := range b.nodes {
		if n.silent() {
			answers <- renewed{i, slices.Repeat([]error{errSilent}, len(ts))}
			continue
		}
		b.runFor(n, func() { answers <- r.renewNode(i) })
	}
	cut := collect(ctx, b, answers, r.add, r.decided, nil)
	errs := r.results(cut)
	if r.answered < len(b.nodes) {
		b.run(func() {
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
	answered int      // nodes
	counts   []*count // by claim
}

// renewed is what one node answered, by claim.
type renewed struct {
	node int
	errs []error
}

func newRenewal(b *Backend, ts []driver.Ticket) *renewal {
	r := &renewal{b: b, sent: time.Now(), ts: slices.Clone(ts)} // it outlives the call
	for _, t := range ts {
		r.counts = append(r.counts, b.newCount(t.Key))
	}
	return r
}

// renewNode renews on one node.
func (r *renewal) renewNode(i int) renewed {
	ts := make([]driver.Ticket, len(r.ts))
	for n, t := range r.ts {
		ts[n] = onMember(t, i)
	}
	errs := r.b.nodes[i].Renew(r.b.callContext(), ts)
	for _, err := range errs {
		r.b.nodes[i].returned(err)
	}
	return renewed{i, errs}
}

// add counts the answer of one node.
func (r *renewal) add(a renewed) {
	r.answered++
	for n, c := range r.counts {
		err := r.checkGrant(n, a.node, a.errs[n])
		c.add(a.node, err)
		switch {
		case c.noticed > 0: // a claim that ends is put back nowhere
		case err == nil && c.acked == r.b.majority:
			for i := range r.b.nodes {
				r.putBack(n, i)
			}
		case driver.Gone(err) && c.isAcked():
			r.putBack(n, a.node)
		}
	}
}

// checkGrant rejects the renewal of something that is not the grant.
func (r *renewal) checkGrant(n, i int, err error) error {
	r.b.claims.with(driverutil.Ref(r.ts[n].Key, r.ts[n].ID), func(cl *claim) {
		_, leaving := cl.state()
		node, token := cl.node(i), r.ts[n].Token
		_, noticed := underNotice(err)
		switch {
		case err != nil && !noticed:
		case leaving:
			err = errLeft
		case token != 0 && !(node.mayBe() && node.ballot == token):
			// It keeps others out and is no vote.
			err = errLeftover
		}
	})
	return err
}

// decided reports whether nothing more can be learned of any claim.
func (r *renewal) decided() bool {
	return !slices.ContainsFunc(r.counts, func(c *count) bool { return !c.decided() })
}

// results says what became of each claim.
func (r *renewal) results(cut error) []error {
	errs := make([]error, len(r.ts))
	for n, c := range r.counts {
		errs[n] = c.result()
		switch {
		case c.isAcked():
		case c.isGone():
			r.removeRest(n)
		case cut != nil:
			errs[n] = cut
		default:
			// A Leave may have begun beside this Renew. Its nodes answer the two in any order,
			// so neither the acks nor the losses need be a majority.
			r.b.claims.with(driverutil.Ref(r.ts[n].Key, r.ts[n].ID), func(cl *claim) {
				if _, leaving := cl.state(); leaving {
					errs[n] = errLeft
				}
			})
		}
	}
	return errs
}

// putBack sends a claim that a majority has just renewed to a node that has lost it. A
// claim that another Backend entered is not sent.
func (r *renewal) putBack(n, i int) {
	var gone driver.GoneError
	if !errors.As(r.counts[n].errs[i], &gone) || gone.Broken {
		return
	}
	t := r.ts[n]
	r.b.claims.with(driverutil.Ref(t.Key, t.ID), func(cl *claim) {
		r.b.onNode(cl, i, func() { r.b.reenterNode(cl, i, t, r.sent) })
	})
}

// reenterNode puts a claim back on one node. The node counts as a vote from the next
// renewal on.
func (b *Backend) reenterNode(cl *claim, i int, t driver.Ticket, sent time.Time) {
	left := validity(t.TTL) - time.Since(sent)
	if held, _ := cl.state(); held == 0 || held != t.Token || cl.node(i).presence == barred || left <= 0 {
		return
	}
	c := t.Claim
	c.ID, c.Ballot, c.NoWait = memberID(c.ID, i), t.Token, true
	call, cancel := context.WithTimeout(b.ctx, min(left, callTimeout))
	defer cancel()
	cl.sending(i, c.Ballot)
	_, err := b.nodes[i].Reenter(call, c)
	b.nodes[i].returned(err)
	cl.entered(i, err)
}

// removeRest takes a lost claim away from the nodes that still have it: there it keeps
// others out and nobody in. Only a Renew that tells the holder does so. One that was cut
// short may find the loss later, from answers that are no longer true, while the holder
// still believes.
func (r *renewal) removeRest(n int) {
	t := r.ts[n]
	t.Token = max(t.Token, 1)
	r.b.claims.with(driverutil.Ref(t.Key, t.ID), func(cl *claim) {
		if cl.leave() {
			return // a Leave is under way and does it
		}
		_ = cl.goneBecause(r.counts[n].why())
		r.b.leaveNodes(cl, t, false) // nobody waits for the acks
	})
}
