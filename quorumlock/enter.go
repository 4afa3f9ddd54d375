package quorumlock

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/driverutil"
)

// maxVotes bounds how often one Enter proposes. The second vote is for clocks that
// differ; more are for clients that came at once and got a few nodes each.
const maxVotes = 16

// Enter proposes one ballot to all members at once. The claim is granted if a majority
// grants the ballot while the lease is still of use: a free lock costs one request per
// member. Enter never waits in line, whatever c.NoWait says. It proposes another ballot
// if the members had granted a larger one before, and, after a pause, if nobody has a
// majority because several clients came at once.
func (b *Backend) Enter(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
	if err := b.begin(ctx); err != nil {
		return driver.Ticket{}, err
	}
	defer b.done()
	if err := c.Validate(b.info); err != nil {
		return driver.Ticket{}, err
	}
	c.TTL, c.WaitTTL = driverutil.Lease(&c, false), 0
	cl := b.claims.open(driverutil.Ref(c.Key, c.ID), len(b.nodes), absent)
	defer b.claims.release(cl)
	select {
	case cl.turn <- struct{}{}:
		defer func() { <-cl.turn }()
	case <-ctx.Done():
		return driver.Ticket{}, ctx.Err()
	case <-b.closing.Done():
		return driver.Ticket{}, driver.ErrClosed
	}
	if err := cl.enter(&c); err != nil {
		return driver.Ticket{}, err
	}
	var earlier *vote
	for n := 1; ; n++ {
		if c.Ballot, _ = cl.state(); c.Ballot == 0 { // a claim that holds the lock keeps its token
			c.Ballot = b.ballot(earlier, n)
		}
		v := b.vote(ctx, cl, c, earlier)
		if t, ok := v.ticket(); ok {
			cl.setHeld(t.Token)
			return t, nil
		}
		cl.setHeld(0)
		b.retreat(ctx, cl, v)
		retry, contended := v.retry()
		if v.cut != nil || !retry || n == maxVotes {
			return driver.Ticket{}, v.refusal()
		}
		if err := b.pause(ctx, n, contended, time.Since(v.sent)); err != nil {
			return driver.Ticket{}, err
		}
		earlier = v
	}
}

// ballot chooses the ballot of vote n. Once a node has refused a ballot, the nodes have
// said which ballots they take, and the own clock no longer counts: it may be far off.
// No two votes of one Enter have the same ballot. Otherwise what is left of one would
// look like a grant of the next.
func (b *Backend) ballot(earlier *vote, n int) int64 {
	clock := b.now().UnixMicro()
	switch {
	case earlier == nil:
		return max(clock, 1)
	case earlier.refused:
		return earlier.floor + int64(n)
	}
	return max(clock, earlier.floor+1, earlier.claim.Ballot+1)
}

// holderGrace is how much longer than the refusal itself a vote waits to learn who holds
// the lock.
const holderGrace = 20 * time.Millisecond

// vote proposes c to all members and waits until the vote is decided.
func (b *Backend) vote(ctx context.Context, cl *claim, c driver.Claim, earlier *vote) *vote {
	c.NoWait = true
	v := b.newVote(c, earlier)
	answers := make(chan answer, len(b.nodes))
	for i, n := range b.nodes {
		if n.silent() {
			answers <- answer{node: i, err: errSilent}
			continue
		}
		b.onNode(cl, i, func() { answers <- b.enterNode(cl, i, v) })
	}
	limit := time.NewTimer(validity(c.TTL))
	defer limit.Stop()
	add := func(a answer) {
		was := v.lost()
		v.add(a)
		if took := time.Since(v.sent); !was && v.lost() { // from here on only the holder is of interest
			limit.Reset(min(max(holderGrace, 2*took), max(validity(c.TTL)-took, 1)))
		}
	}
	v.cut = collect(ctx, b, answers, add, v.decided, limit.C)
	if v.cut == errTooLate {
		v.cut, v.late = nil, true
	}
	if _, ok := v.ticket(); !ok {
		v.failed.Store(true)
	}
	return v
}

// enterNode proposes to one node.
func (b *Backend) enterNode(cl *claim, i int, v *vote) answer {
	a := answer{node: i}
	c := v.claim
	switch {
	case cl.node(i).presence == barred:
		a.err = driver.GoneError{Reason: "an earlier attempt got no answer and must not come back"}
		return a
	case v.failed.Load() || time.Since(v.sent) >= validity(c.TTL):
		a.err = errNotAsked
		return a
	}
	c.ID = memberID(c.ID, i)
	cl.sending(i, c.Ballot)
	a.ticket, a.err = b.nodes[i].Enter(b.callContext(), c)
	b.nodes[i].returned(a.err)
	if a.err == nil && !a.ticket.Granted {
		a.err = errWaits
	}
	cl.entered(i, a.err)
	if a.err == nil {
		return a
	}
	var busy *driver.BusyError
	if errors.As(a.err, &busy) && busy.Token == c.Ballot && b.isOwnClaim(i, cl, c.Ballot) {
		a.err = errTwins
	}
	return a
}

// isOwnClaim reports whether the claim in the way on node i is cl under the ID of
// another node. Then two members are one store, or this one request has reached the wrong
// server: over a stale connection, or at an address that was reused. It is no vote, and it
// decides nothing else: each store grants once, so the votes of a majority are those of
// different stores. Another client may have proposed the same ballot, so the token alone does
// not say so.
func (b *Backend) isOwnClaim(i int, cl *claim, ballot int64) bool {
	l, err := b.nodes[i].Line(b.callContext(), cl.ref.Key)
	if err != nil {
		return false
	}
	for _, s := range l.Claims {
		if s.Token == ballot && s.ID == driverutil.ShortID(cl.ref.ID) {
			return true
		}
	}
	return false
}

// retreat takes a failed attempt away from all nodes. It waits for those that have
// answered, so that the next vote finds them free. The others follow in the background.
func (b *Backend) retreat(ctx context.Context, cl *claim, v *vote) {
	waitFor := 0
	acks := make(chan ack, len(b.nodes))
	for i, err := range v.errs {
		p, came := cl.node(i).presence, err != errNoAnswer
		if came && (p == absent || p == barred) {
			continue
		}
		if came && p == present {
			waitFor++
		}
		t := driver.Ticket{Claim: v.claim, Token: cmp.Or(v.granted[i].token, v.claim.Ballot)}
		b.onNode(cl, i, func() { b.leaveNode(cl, i, t, false, acks) })
	}
	add := func(a ack) {
		if v.errs[a.node] == nil {
			waitFor--
		}
	}
	_ = collect(ctx, b, acks, add, func() bool { return waitFor <= 0 || v.cut != nil }, nil)
}

// pause keeps clients that came at once from coming again at once. It grows with the
// number of votes and with the time that the last vote took.
func (b *Backend) pause(ctx context.Context, n int, contended bool, took time.Duration) error {
	d := time.Duration(0)
	if contended || n > 1 {
		d = rand.N(max(took, time.Millisecond) * time.Duration(min(1<<n, 32)))
	}
	return b.sleep(ctx, d)
}

// sleep waits for d, or says why it did not.
func (b *Backend) sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(max(d, 1)): // a timer of 0 ends the race detector in bubbles (golang/go#78156)
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-b.closing.Done():
		return driver.ErrClosed
	}
}
