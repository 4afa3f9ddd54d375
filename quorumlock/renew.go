package quorumlock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// Renew starts the leases of ts again on all nodes, one request for each: a claim is
// alive if a majority has renewed it. To nodes that have lost a claim which is alive it
// is sent back behind, so that a long hold does not erode as nodes restart one by one.
func (b *Backend) Renew(ctx context.Context, ts []driver.Ticket) []error {
	errs := make([]error, len(ts))
	if err := b.ready(ctx); err != nil {
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	defer b.calls.done()
	h := newHeartbeat(b, ts)
	for i := range b.nodes {
		b.calls.run(simply(func() { h.renewAt(i) }))
	}
	var cut error
	select {
	case <-h.done:
	case <-ctx.Done():
		cut = ctx.Err()
	case <-b.closing.Done():
		cut = driver.ErrClosed
	}
	return h.verdicts(cut)
}

// heartbeat is one renewal of many claims.
type heartbeat struct {
	b    *Backend
	ts   []driver.Ticket
	sent time.Time
	done chan struct{} // closed when all is settled

	mu      sync.Mutex
	open    int       // claims that are not settled
	came    int       // nodes that have answered
	answers [][]error // per claim and node
	alive   []int     // nodes that have renewed it, per claim
	gone    []int     // nodes that have lost it, per claim
}

func newHeartbeat(b *Backend, ts []driver.Ticket) *heartbeat {
	h := &heartbeat{
		b:       b,
		ts:      slices.Clone(ts), // ours, for it may go on behind
		sent:    time.Now(),
		done:    make(chan struct{}),
		open:    len(ts),
		answers: make([][]error, len(ts)),
		alive:   make([]int, len(ts)),
		gone:    make([]int, len(ts)),
	}
	flat := make([]error, len(ts)*len(b.nodes))
	for n := range ts {
		h.answers[n] = flat[n*len(b.nodes) : (n+1)*len(b.nodes)]
		for i := range b.nodes {
			h.answers[n][i] = errNoAnswer
		}
	}
	return h
}

// renewAt renews on one node.
func (h *heartbeat) renewAt(i int) {
	mine := make([]driver.Ticket, len(h.ts))
	longest := time.Duration(0)
	for n, t := range h.ts {
		mine[n] = member(t, i)
		longest = max(longest, t.TTL)
	}
	errs := h.b.nodes[i].Renew(h.b.call(patience(longest)), mine)

	h.mu.Lock()
	defer h.mu.Unlock()
	for n := range h.ts {
		if n < len(errs) {
			h.note(n, i, h.ours(n, i, errs[n]))
		}
	}
	h.came++
	if h.came == len(h.b.nodes) && h.open > 0 {
		h.open = 0
		close(h.done)
	}
}

var errLeftover = errors.New("what it has is left from an attempt that failed")

// ours doubts a node that has renewed a claim, if that was not the grant.
func (h *heartbeat) ours(n, i int, err error) error {
	t := h.ts[n]
	if err != nil {
		return err
	}
	if cl := h.b.known(name{t.Key, t.ID}); cl != nil {
		defer h.b.done(cl)
		switch {
		case cl.isLeaving():
			return driver.ErrGone{Reason: "it has left"}
		case t.Token != 0 && !cl.standsWith(i, t.Token):
			return errLeftover
		}
	}
	return nil
}

// note takes in what a node answered for a claim. h.mu is held.
func (h *heartbeat) note(n, i int, err error) {
	was := h.settled(n)
	h.answers[n][i] = err
	switch {
	case err == nil:
		if h.alive[n]++; h.alive[n] == h.b.majority {
			for j := range h.b.nodes {
				h.putBack(n, j)
			}
		}
	case driver.Gone(err):
		h.gone[n]++
		if h.alive[n] >= h.b.majority {
			h.putBack(n, i)
		}
	}
	if !was && h.settled(n) {
		if h.open--; h.open == 0 {
			close(h.done)
		}
	}
}

func (h *heartbeat) lost(n int) bool { return h.gone[n] > len(h.b.nodes)-h.b.majority }

func (h *heartbeat) settled(n int) bool { return h.alive[n] >= h.b.majority || h.lost(n) }

// putBack sends a claim that a majority has renewed, in this heartbeat, to a node that
// has lost it. h.mu is held.
func (h *heartbeat) putBack(n, i int) {
	var gone driver.ErrGone
	if !errors.As(h.answers[n][i], &gone) || gone.Broken {
		return
	}
	t := h.ts[n]
	cl := h.b.known(name{t.Key, t.ID})
	if cl == nil {
		return // it was not us who entered it
	}
	defer h.b.done(cl)
	h.b.behind(cl, i, func(i int, ended bool) {
		if !ended {
			h.b.reenterAt(i, cl, t, h.sent)
		}
	})
}

// reenterAt puts a claim back on one node. It counts for nothing until the next
// heartbeat has found it there.
func (b *Backend) reenterAt(i int, cl *claim, t driver.Ticket, sent time.Time) {
	left := validity(t.TTL) - time.Since(sent)
	if cl.at(i) >= owing || cl.isLeaving() || cl.holds() != t.Token || left <= 0 {
		return
	}
	c := t.Claim
	c.ID, c.Ballot, c.NoWait = cl.spots[i].id, t.Token, true
	call, end := context.WithTimeout(b.ctx, min(left, patience(c.TTL)))
	defer end()
	cl.sends(i, c.Ballot)
	switch _, err := b.nodes[i].Reenter(call, c); {
	case err == nil:
		cl.put(i, inside)
	case definite(err):
		cl.put(i, nowhere)
	default:
		cl.put(i, unsure)
	}
}

// letGo takes what a minority still has of a claim that is lost away from it: it keeps
// others out, and nobody in. That is for when its holder is told: a heartbeat that was
// cut short may find out later, and from answers that are no longer true, while the
// holder still believes. h.mu is held.
func (h *heartbeat) letGo(n int) {
	t := h.ts[n]
	cl := h.b.known(name{t.Key, t.ID})
	if cl == nil {
		return
	}
	defer h.b.done(cl)
	if cl.leave() {
		return // a Leave is at it, and is to be told that it was the one
	}
	cl.goneFor(h.why(n))
	h.b.everywhere(cl, func(i int, ended bool) { h.b.leaveAt(i, cl, t, false, func(leaving) {}, ended) })
}

// verdicts says what became of each claim.
func (h *heartbeat) verdicts(cut error) []error {
	h.mu.Lock()
	defer h.mu.Unlock()
	errs := make([]error, len(h.ts))
	for n := range h.ts {
		switch {
		case h.alive[n] >= h.b.majority:
		case h.lost(n):
			errs[n] = h.why(n)
			h.letGo(n)
		case cut != nil:
			errs[n] = cut
		default:
			short := &shortError{key: h.ts[n].Key, have: h.alive[n], need: h.b.majority, of: len(h.b.nodes)}
			for i, err := range h.answers[n] {
				if err != nil {
					short.add(h.b.nodes[i].name, err)
				}
			}
			errs[n] = short
		}
	}
	return errs
}

// why is the reason for which most likely a claim is gone.
func (h *heartbeat) why(n int) driver.ErrGone {
	var why driver.ErrGone
	for _, err := range h.answers[n] {
		var g driver.ErrGone
		if errors.As(err, &g) && (g.Broken || why.Reason == "" && !why.Broken) {
			why = g
		}
	}
	return why
}
