package zklock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/driverutil"
	"github.com/go-zookeeper/zk"
)

// A claim is an ephemeral, sequential node in the container of its line. The transaction that
// made the node is the claim's token. A claim that joins an empty line is granted. Otherwise it
// reads the line, and the rule says whether it is granted (fits in line.go), or which node
// Await watches (blocker in line.go, await.go).

// Enter joins the line of c.Key, or starts again the lease of the claim with c.ID that is
// there already. A free lock costs one request, and one before it if this Backend has not
// used the line for a minute. A claim that is not granted costs two more: of the line, and
// of the first claim in it.
func (b *Backend) Enter(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
	info := b.Info()
	info.MaxTTL = 0 // the session bounds the lease; the ticket says so
	if err := c.Validate(info); err != nil {
		return driver.Ticket{}, err
	}
	c.WaitTTL = 0 // the lease is the session's
	return do(ctx, b, "entering the line of", c.Key, func(ctx context.Context, s *session) (driver.Ticket, error) {
		return b.enter(ctx, s, c)
	})
}

// errRetry says that what a try was based on has changed; try again.
var errRetry = errors.New("the line changed meanwhile")

func (b *Backend) enter(ctx context.Context, s *session, c driver.Claim) (t driver.Ticket, err error) {
	own := b.claims.acquire(driverutil.Ref(c.Key, c.ID))
	defer own.release()
	for ctx.Err() == nil {
		if gone := own.tombstone(); gone != nil {
			return t, gone
		}
		t, err = (&entry{b, s, own, c}).try()
		if !errors.Is(err, errRetry) {
			return t, err
		}
		if s, err = b.session(ctx); err != nil {
			return t, err
		}
	}
	return t, context.Cause(ctx)
}

// entry is one try of an Enter. It has the turn of its claim.
type entry struct {
	b   *Backend
	s   *session
	own *claim
	c   driver.Claim
}

func (e *entry) try() (driver.Ticket, error) {
	p, err := e.b.settle(e.s, e.own)
	if err != nil {
		return driver.Ticket{}, err
	}
	if p.node != "" {
		return e.repeat(p)
	}
	version, made, err := e.openLine()
	if err != nil {
		return driver.Ticket{}, err
	}
	t, err := e.join(version)
	if _, refused := refusalOf(err); refused || isContract(err) {
		err = e.withdraw(err)
	}
	if made && err != nil && e.own.state().at.node == "" {
		// The server clears away only containers that have had a claim.
		e.b.deleteLater(e.s, e.b.lineOf(e.c.Key))
	}
	return t, err
}

// settle finds out where a claim is in line in session s: what became of a join that was
// not answered. The caller has the turn.
func (b *Backend) settle(s *session, c *claim) (position, error) {
	st := c.state()
	switch {
	case st.at.node != "" && st.at.session != s:
		return position{}, errNoSession // its end is being noted
	case st.at.node != "":
		return st.at, nil
	case st.unsure == nil:
		return position{}, nil
	case st.unsure != s:
		// The session of that join is over. What it may have made ends with it, and is
		// not ours.
		c.left()
		return position{}, nil
	}
	if err := s.dropBarrier(st.barrier); err != nil {
		return position{}, err
	}
	var f *found
	node, _, err := b.find(s, c.ClaimRef)
	if err == nil && node != "" {
		f, err = s.open(node)
	}
	switch {
	case errors.Is(err, zk.ErrNoNode), err == nil && (f == nil || f.stat.EphemeralOwner != s.id):
		c.left()
		return position{}, nil
	case err != nil:
		return position{}, err
	}
	p := position{s, f.path, f.stat.Czxid}
	c.entered(p, f.record, s.lease(f.left()))
	return p, nil
}

// openLine makes the line's container, unless this Backend knows that it is there. It
// returns the version that the container must have as the claim joins.
func (e *entry) openLine() (version int32, made bool, err error) {
	line := e.b.containers.find(e.c.Key)
	fresh := time.Since(line.seen) < containerAge
	switch {
	case fresh && !e.c.NoWait:
		return anyVersion, false, nil
	case fresh && line.version != anyVersion:
		return line.version, false, nil // nobody has entered since we left, or the join fails
	}
	err = e.s.create(e.b.lineOf(e.c.Key), zk.FlagContainer)
	switch {
	case err == nil:
		return 0, true, nil // nobody has entered before us, or the join fails
	case errors.Is(err, zk.ErrNoNode): // the Prefix was deleted
		return 0, false, cmp.Or(e.s.dropBarrier(""), errRetry)
	case !errors.Is(err, zk.ErrNodeExists):
		return 0, false, err
	case !e.c.NoWait:
		return anyVersion, false, nil
	}
	// The answer that the container exists came after everything that others were told,
	// so what is read now is not older than their calls.
	version, err = e.admit()
	return version, false, err
}

// admit refuses a claim that does not wait and would not be granted. Nothing is written.
// Otherwise it returns the version of the container that it read.
func (e *entry) admit() (version int32, err error) {
	l, err := e.b.readLine(e.s, e.c.Key)
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return 0, errRetry
	case err != nil:
		return 0, err
	case len(l.members) > 0 && driverutil.CheckKind(e.c.Capacity, l.members[0].capacity) != nil:
		return 0, driverutil.CheckKind(e.c.Capacity, l.members[0].capacity)
	}
	own := member{capacity: e.c.Capacity, weight: e.c.Weight}
	if fits(append(l.members, own), len(l.members)) {
		return l.stat.Version, nil
	}
	head, err := e.b.describeHead(e.s, e.c.Key, l.members)
	switch {
	case err != nil:
		return 0, err
	case head == nil:
		return 0, errRetry
	}
	return 0, head
}

// join makes the claim's node, if the container has that version.
func (e *entry) join(version int32) (driver.Ticket, error) {
	before, err := e.makeNode(version)
	if err != nil {
		return driver.Ticket{}, err
	}
	e.b.containers.seen(e.c.Key, nil)
	e.s.listen()
	st := e.own.state()
	if st.whyNotIn(e.s) != nil {
		return driver.Ticket{}, errNoSession
	}
	if _, err := tokenOf(st.at.czxid); err != nil {
		return driver.Ticket{}, err
	}
	if before.NumChildren == 0 {
		e.own.isGranted()
		t := st.ticket(e.c)
		t.Granted = true
		return t, nil
	}
	t, err := e.look()
	if err == nil && e.c.NoWait && !t.Granted {
		// The container was made anew and came to the same version meanwhile.
		err = cmp.Or(t.Head, &driver.BusyError{Ahead: t.Ahead})
	}
	return t, err
}

// look says where the claim stands, unless it is of another kind than its line.
func (e *entry) look() (driver.Ticket, error) {
	l, at, err := e.b.place(e.s, e.own, e.c.Key)
	if err == nil {
		err = checkKind(l.members, at, &e.c)
	}
	if err != nil {
		return driver.Ticket{}, err
	}
	return e.b.stand(e.s, e.own, e.c, l, at)
}

// makeNode makes the claim's node in one transaction, and returns the Stat of the container
// right before.
func (e *entry) makeNode(version int32) (before *zk.Stat, err error) {
	barrier, err := e.s.currentBarrier()
	if err != nil {
		return nil, err
	}
	dir, ttl := e.b.lineOf(e.c.Key), e.s.lease(e.c.TTL)
	record := claimRecord{
		Format: format, Owner: e.c.Owner, Note: e.c.Note, Trace: e.c.Trace,
		LockDelay: driverutil.Duration(e.c.LockDelay), Span: e.c.Span,
		TTL: ttl.Milliseconds(), AtOnce: version != anyVersion,
	}
	e.own.update(func() { e.own.unsure, e.own.barrier = e.s, barrier })
	rs, err := e.s.multi(
		&zk.CheckVersionRequest{Path: barrier, Version: -1},
		&zk.SetDataRequest{Path: dir, Version: version},
		&zk.CreateRequest{
			Path: dir + "/" + nameOf(&e.c), Data: write(record), Acl: e.b.acl, Flags: zk.FlagEphemeralSequential,
		},
	)
	if err == nil {
		// The container was written to in the transaction that made the node.
		e.own.entered(position{e.s, rs[2].String, rs[1].Stat.Mzxid}, record, ttl)
		return rs[1].Stat, nil
	}
	if !isAnswer(err) {
		return nil, err
	}
	e.own.left()
	switch noNode := errors.Is(err, zk.ErrNoNode); {
	case noNode && firstFailed(rs) == 0:
		err = cmp.Or(e.s.dropBarrier(barrier), errRetry)
	case noNode, errors.Is(err, zk.ErrBadVersion): // the container is gone, or another claim has entered
		e.b.containers.forget(e.c.Key)
		err = errRetry
	}
	return nil, err
}

// repeat renews a claim that is in line and answers its ticket.
func (e *entry) repeat(p position) (driver.Ticket, error) {
	m, ok := parseMember(path.Base(p.node))
	if !ok {
		return driver.Ticket{}, fmt.Errorf("the node %q is not named as a claim is", p.node)
	}
	err := driverutil.CheckFound(e.c.Capacity, e.c.Weight, m.capacity, m.weight)
	if err != nil {
		return driver.Ticket{}, err
	}
	st := e.own.state()
	e.b.renewBatch(e.s, []renewal{{e.own, st, e.s.lease(e.c.TTL), &err}})
	err = driverutil.InLine(err)
	if driver.Gone(err) && e.own.tombstone() == nil {
		return driver.Ticket{}, errRetry // it is not in line any more
	}
	if err != nil {
		return driver.Ticket{}, err
	}
	return e.look()
}

// withdraw takes the claim out of the line again, because Enter answers that it has not joined.
func (e *entry) withdraw(why error) error {
	if node := e.own.state().at.node; node != "" {
		if _, err := e.b.remove(e.s, e.c.Key, node, anyVersion); err != nil {
			return unsureError{fmt.Errorf("its node could not be deleted after the answer %q: %w", why, err)}
		}
		e.own.left()
	}
	return why
}
