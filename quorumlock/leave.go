package quorumlock

import (
	"context"
	"errors"
	"time"

	"github.com/fencelock/fencelock/driver"
)

var errExit = &driver.PermanentError{Err: errors.New("quorum: no mark can be left, and no place be kept: a majority has no law for either")}

// leaving is what one node answered to a Leave, or to a Break.
type leaving struct {
	node int
	err  error
}

// Leave takes the claim away from all nodes, one request for each that may have it,
// and returns when a majority has confirmed it. The others are told behind, and those
// that do not answer are told again until the lease is over.
func (b *Backend) Leave(ctx context.Context, t driver.Ticket, e driver.Exit) error {
	if err := b.ready(ctx); err != nil {
		return err
	}
	defer b.calls.done()
	if e != (driver.Exit{}) {
		if _, err := b.Await(ctx, t); err != nil {
			return err
		}
		return errExit
	}
	// A claim that is not known may be another view's, or have lost its way: every node
	// is told.
	cl := b.use(name{t.Key, t.ID}, inside)
	defer b.done(cl)
	cl.leave()
	a := b.agreement(t.Key)
	b.everywhere(cl, func(i int, ended bool) { b.leaveAt(i, cl, t, t.Token == 0, a.add, ended) })
	return b.agree(ctx, a)
}

// owedAtOnce bounds how many claims a node is told again to let go, when it does not
// answer. Those beyond end with their leases.
const owedAtOnce = 256

// leaveAt takes a claim away from one node. rest says
// that an Enter nobody here knows of may arrive.
func (b *Backend) leaveAt(i int, cl *claim, t driver.Ticket, rest bool, answer func(leaving), ended bool) {
	if ended {
		answer(leaving{i, driver.ErrClosed})
		return
	}
	n := b.nodes[i]
	switch cl.at(i) {
	case nowhere:
		if !rest {
			answer(leaving{i, cl.goneFor(nil)})
			return
		}
		t.Token = 0
	case unsure:
		t.Token = 0
	case barred:
		if !rest {
			answer(leaving{i, cl.goneFor(nil)})
			return
		}
		t.Token = 0
	}
	t.ID = cl.spots[i].id
	sent := time.Now()
	err := b.letGo(i, cl, t)
	answer(leaving{i, err})
	if err == nil || definite(err) {
		return
	}
	// It is told again for as long as that may be of use to anybody.
	defer cl.put(i, barred)
	defer n.owed.Add(-1)
	end := sent.Add(t.TTL)
	quiet := n.owed.Add(1) > owedAtOnce
	for pause := 100 * time.Millisecond; ; pause *= 2 {
		timer := time.NewTimer(max(min(pause, time.Until(end)), 1))
		select {
		case <-timer.C:
		case <-b.closing.Done():
			timer.Stop()
			return
		}
		if !time.Now().Before(end) {
			return
		}
		if quiet {
			continue
		}
		if err := b.letGo(i, cl, t); err == nil || definite(err) {
			return
		}
	}
}

// letGo sends one Leave. The claim must not be sent to this node again if that is not
// answered, for it may still arrive, or if it lays the id to rest.
func (b *Backend) letGo(i int, cl *claim, t driver.Ticket) error {
	err := b.nodes[i].Leave(b.call(patience(t.TTL/3)), t, driver.Exit{})
	switch {
	case err != nil && !definite(err):
		cl.put(i, owing)
	case t.Token == 0:
		cl.goneFor(err)
		cl.put(i, barred)
	default:
		cl.goneFor(err)
		cl.leftFrom(i)
	}
	return err
}

// Break ends the claim whose span holds token on all nodes, in one request for each,
// and returns when a majority has done so.
func (b *Backend) Break(ctx context.Context, key string, token int64, reason string) error {
	if err := b.ready(ctx); err != nil {
		return err
	}
	defer b.calls.done()
	a := b.agreement(key)
	for i, n := range b.nodes {
		b.calls.run(simply(func() {
			a.add(leaving{i, n.Break(b.call(patience(driver.DefaultSkew)), key, token, reason)})
		}))
	}
	return b.agree(ctx, a)
}
