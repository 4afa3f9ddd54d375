package quorumlock

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/driverutil"
)

var errExit = driver.Permanent(errors.New(
	"quorum: no mark can be left, and no place be kept: a majority has no law for either"))

// Leave takes the claim away from every node that may have it, with one request each,
// and returns when a majority has acknowledged. The others follow in the background. A
// node that does not answer is asked again until the lease is over.
func (b *Backend) Leave(ctx context.Context, t driver.Ticket, e driver.Exit) error {
	if err := b.begin(ctx); err != nil {
		return err
	}
	defer b.done()
	if e.IfWaiting { // no claim of a quorum waits
		if _, err := b.Await(ctx, t); !driver.Gone(err) {
			return cmp.Or(err, driver.ErrGranted)
		}
	}
	if e.Mark != "" || e.Linger != 0 {
		if _, err := b.Await(ctx, t); err != nil {
			return err
		}
		return errExit
	}
	// A claim that is not in the table may have been entered through another Backend:
	// every node is asked.
	cl := b.claims.open(driverutil.Ref(t.Key, t.ID), len(b.nodes), present)
	defer b.claims.release(cl)
	cl.leave()
	return b.waitForAcks(ctx, t.Key, b.leaveNodes(cl, t, e.Tombstone))
}

// leaveNodes takes a claim away from all nodes and returns their acks.
func (b *Backend) leaveNodes(cl *claim, t driver.Ticket, tombstone bool) <-chan ack {
	acks := make(chan ack, len(b.nodes))
	for i := range b.nodes {
		b.onNode(cl, i, func() { b.leaveNode(cl, i, t, tombstone, acks) })
	}
	return acks
}

// leaveNode takes a claim away from one node and sends the outcome to acks. If the node
// does not answer, leaveNode asks again, for as long as the lease may last.
func (b *Backend) leaveNode(cl *claim, i int, t driver.Ticket, tombstone bool, acks chan<- ack) {
	p := cl.node(i).presence
	if !tombstone && (p == absent || p == barred) {
		acks <- ack{i, cl.goneBecause(nil)}
		return
	}
	tombstone = tombstone || p != present // an Enter may still arrive
	end := time.Now().Add(t.TTL)
	err := b.sendLeave(cl, i, t, tombstone)
	acks <- ack{i, err}
	if !leaveOver(err) {
		b.resendLeave(cl, i, t, tombstone, end)
	}
}

// resendLeave asks a node again to let a claim go, until it answers or the lease is over.
// Later requests for the claim wait behind it: a lost Leave may still arrive.
func (b *Backend) resendLeave(cl *claim, i int, t driver.Ticket, tombstone bool, end time.Time) {
	for pause := 100 * time.Millisecond; ; pause *= 2 {
		if b.sleep(context.Background(), min(pause, time.Until(end))) != nil || !time.Now().Before(end) {
			return
		}
		if err := b.sendLeave(cl, i, t, tombstone); leaveOver(err) {
			return
		}
	}
}

// sendLeave sends one Leave and notes the outcome.
func (b *Backend) sendLeave(cl *claim, i int, t driver.Ticket, tombstone bool) error {
	err := b.nodes[i].Leave(b.callContext(), onMember(t, i), driver.Exit{Tombstone: tombstone})
	b.nodes[i].returned(err)
	cl.left(i, err, tombstone)
	return err
}

// Break ends the claim whose span holds token on all nodes, with one request each, and
// returns when a majority has acknowledged.
func (b *Backend) Break(ctx context.Context, key string, token int64, how driver.Break) error {
	if how.Delay > 0 {
		return errExit
	}
	if err := b.begin(ctx); err != nil {
		return err
	}
	defer b.done()
	return b.waitForAcks(ctx, key, b.ask(func(_ int, n *node) error {
		// Members keep no key closed, also not for the lock-delay of the claim.
		return n.Break(b.callContext(), key, token, driver.Break{Reason: how.Reason, Delay: -1, Notice: how.Notice})
	}))
}

// Await says whether a majority still holds the claim. A quorum has no line: a granted
// claim stays granted, and no other claim can wait.
func (b *Backend) Await(ctx context.Context, t driver.Ticket) (driver.Ticket, error) {
	if err := b.begin(ctx); err != nil {
		return driver.Ticket{}, err
	}
	defer b.done()
	acks := b.ask(func(i int, n *node) error {
		now, err := n.Await(b.callContext(), onMember(t, i))
		if err == nil && !now.Granted {
			err = errWaits
		}
		return err
	})
	if err := b.waitForAcks(ctx, t.Key, acks); err != nil {
		return driver.Ticket{}, err
	}
	held := t // a late node still reads t
	held.Granted, held.Ahead, held.Head = true, 0, nil
	return held, nil
}
