package zklock

import (
	"context"
	"errors"
	"fmt"
	"path"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/go-zookeeper/zk"
)

// Enter joins the line of c.Key, or starts again the lease of the claim with c.ID
// that is there already. A free lock costs one request, and one before it that makes the
// line's container if this Backend has not used the line for a minute. A claim that is not
// granted costs one more, which tells whom it waits for, and with few ahead another one,
// which tells who is first.
func (b *Backend) Enter(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
	if err := b.ready(ctx); err != nil {
		return driver.Ticket{}, err
	}
	info := b.Info()
	info.MaxTTL = 0 // the session bounds the lease; the ticket says so
	if err := c.Validate(info); err != nil {
		return driver.Ticket{}, err
	}
	t, err := b.enter(ctx, c)
	return t, failed(ctx, "entering the line of", c.Key, err)
}

func (b *Backend) enter(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
	own, err := b.claims.acquire(ctx, c.Ref(), b.tasks.closed())
	if err != nil {
		return driver.Ticket{}, err
	}
	defer own.release()
	for {
		if err := ctx.Err(); err != nil {
			return driver.Ticket{}, err
		}
		if gone := own.tombstone(); gone != nil {
			return driver.Ticket{}, *gone
		}
		s, err := b.session(ctx)
		if err != nil {
			return driver.Ticket{}, err
		}
		e := &entry{b: b, s: s, own: own, c: c}
		t, err := e.try(ctx)
		if !errors.Is(err, errRetry) {
			return t, err
		}
	}
}

// entry is one try of an Enter. It has the turn of its claim.
type entry struct {
	b   *Backend
	s   *session
	own *claim
	c   driver.Claim

	made bool // this try made the line's container
}

// errRetry says that what a try was based on has changed; try again.
var errRetry = errors.New("the line changed meanwhile")

func (e *entry) try(ctx context.Context) (driver.Ticket, error) {
	inLine, err := e.b.settle(ctx, e.s, e.own)
	if err != nil {
		return driver.Ticket{}, err
	}
	if inLine {
		return e.repeat(ctx)
	}
	version, err := e.openLine(ctx)
	if err != nil {
		return driver.Ticket{}, err
	}
	return e.join(ctx, version)
}

// settle finds out whether a claim is in line in session s: what became of a join that
// was not answered, or not yet. The caller has the turn.
func (b *Backend) settle(ctx context.Context, s *session, c *claim) (inLine bool, err error) {
	if joining := c.joinUnderWay(); joining != nil {
		select {
		case <-joining:
		case <-ctx.Done():
			return false, ctx.Err()
		case <-b.tasks.closed():
			return false, driver.ErrClosed
		}
	}
	if p, ok := c.position(); ok {
		if p.session != s {
			return false, errNoSession // its end is being noted
		}
		return true, nil
	}
	switch c.unsureIn() {
	case nil:
		return false, nil
	case s:
	default:
		// The session of that join is over. What it may have made ends with it, and is
		// not ours.
		c.forget()
		return false, nil
	}
	if err := s.raiseBarrier(ctx); err != nil {
		return false, err
	}
	f, err := b.seek(ctx, s, c.ClaimRef)
	if err != nil {
		return false, err
	}
	if f == nil || f.owner != s.id {
		c.forget()
		return false, nil
	}
	c.enter(position{s, f.path, f.czxid}, f.record, s.lease(f.left()))
	return true, nil
}

// openLine makes the line's container, unless this Backend knows that it is there. It
// returns the version that the line must have as the claim joins.
func (e *entry) openLine(ctx context.Context) (version int32, err error) {
	known, version := e.b.lines.resume(e.c.Key)
	switch {
	case known && !e.c.NoWait:
		return anyVersion, nil
	case known && version != anyVersion:
		return version, nil // nobody has entered since we left, or the join fails
	}
	err = e.s.createContainer(ctx, e.b.lineOf(e.c.Key), e.b.acl)
	switch {
	case err == nil:
		e.made = true
		return 0, nil // nobody has entered before us, or the join fails
	case errors.Is(err, zk.ErrNodeExists):
		e.b.lines.seen(e.c.Key)
	case errors.Is(err, zk.ErrNoNode): // somebody deleted the Prefix
		e.s.forgetNodes(e.s.heartbeat().Path)
		return 0, errRetry
	default:
		return 0, err
	}
	if !e.c.NoWait {
		return anyVersion, nil
	}
	// The answer that the container exists came after everything that others were told,
	// so what is read now is not older than their calls.
	return e.admit(ctx)
}

// admit refuses a claim that does not wait and would not be granted. Nothing is written.
// Otherwise it returns the version of the line that it read.
func (e *entry) admit(ctx context.Context) (version int32, err error) {
	l, err := e.b.readLine(ctx, e.s, e.c.Key)
	if errors.Is(err, zk.ErrNoNode) {
		return 0, errRetry
	}
	if err != nil {
		return 0, err
	}
	sum := e.c.Weight
	for i := range l.members {
		if l.members[i].semaphore() != (e.c.Capacity != driver.RW) {
			return 0, driver.ErrKind
		}
		sum += l.members[i].weight
	}
	if sum <= e.c.Capacity {
		return l.stat.Version, nil
	}
	head, err := e.b.open(ctx, e.s, e.c.Key, l.members[0])
	if errors.Is(err, zk.ErrNoNode) {
		return 0, errRetry
	}
	if err != nil {
		return 0, err
	}
	busy, err := head.busy(len(l.members))
	if err != nil {
		return 0, err
	}
	return 0, busy
}

// join makes the claim's node, if the line has that version.
func (e *entry) join(ctx context.Context, version int32) (driver.Ticket, error) {
	barrier := e.s.barrier()
	j := e.send(barrier, version)
	select {
	case <-j.done:
	case <-ctx.Done():
		return driver.Ticket{}, ctx.Err()
	case <-e.b.tasks.closed():
		return driver.Ticket{}, driver.ErrClosed
	}
	if j.err != nil {
		return driver.Ticket{}, e.explain(ctx, barrier, j)
	}
	if _, ok := e.own.position(); !ok {
		return driver.Ticket{}, errNoSession
	}
	e.b.lines.seen(e.c.Key)
	before := j.rs[1].Stat // of the line, just before the claim's node was made in it
	if _, err := tokenOf(before.Mzxid); err != nil {
		return driver.Ticket{}, e.withdraw(ctx, err)
	}
	if before.NumChildren == 0 {
		e.own.grant()
		return e.own.ticket(e.c, standing{granted: true}, ""), nil
	}
	t, err := e.look(ctx)
	if err == nil && e.c.NoWait && !t.Granted {
		// The line was made anew and came to the same version meanwhile.
		busy := t.Head
		if busy == nil {
			busy = &driver.BusyError{Ahead: t.Ahead}
		}
		return driver.Ticket{}, e.withdraw(ctx, busy)
	}
	return t, err
}

// joining is a join under way.
type joining struct {
	done chan struct{} // closed when it is answered; the claim knows then
	rs   []zk.MultiResponse
	err  error
}

// send sends the transaction that makes the claim's node. It goes on when the caller is
// gone: what follows for the same claim waits for it.
func (e *entry) send(barrier *zk.CheckVersionRequest, version int32) *joining {
	dir := e.b.lineOf(e.c.Key)
	ttl := e.s.lease(e.c.TTL)
	record := claimRecord{
		Format: format, Owner: e.c.Owner, Note: e.c.Note, Span: e.c.Span,
		TTL: ttl.Milliseconds(), AtOnce: version != anyVersion,
	}
	ops := []any{
		barrier,
		&zk.SetDataRequest{Path: dir, Version: version},
		&zk.CreateRequest{
			Path: dir + "/" + nameOf(&e.c), Data: write(record), Acl: e.b.acl, Flags: zk.FlagEphemeralSequential,
		},
	}
	j := &joining{done: make(chan struct{})}
	e.own.beginJoin(j.done)
	go func() {
		defer close(j.done)
		j.rs, j.err = e.s.multiNow(ops)
		switch {
		case j.err == nil:
			// The container was written to in the transaction that made the node.
			e.own.enter(position{e.s, j.rs[2].String, j.rs[1].Stat.Mzxid}, record, ttl)
			return
		case isAnswer(j.err):
			e.own.joinFailed(nil)
		default:
			e.own.joinFailed(e.s)
		}
		if e.made {
			e.b.removeLine(e.c.Key)
		}
	}()
	return j
}

// removeLine deletes the container of a line in the background, if nobody is in it: the
// server clears away only those that somebody was in. An Enter that still finds it
// gone makes it again.
func (b *Backend) removeLine(key string) {
	b.tasks.run(func(ctx context.Context) {
		s, err := b.conn.await(ctx)
		if err != nil {
			return
		}
		if err := s.delete(ctx, b.lineOf(key)); err == nil {
			b.lines.gone(key)
		}
	})
}

// explain says what a failed join means.
func (e *entry) explain(ctx context.Context, barrier *zk.CheckVersionRequest, j *joining) error {
	if !isAnswer(j.err) || len(j.rs) == 0 {
		return j.err
	}
	first := firstFailed(j.rs) == 0
	switch {
	case first && errors.Is(j.err, zk.ErrBadVersion):
		if err := e.s.readBarrier(ctx, barrier.Version); err != nil && !errors.Is(err, zk.ErrNoNode) {
			return err
		}
		return errRetry
	case first && errors.Is(j.err, zk.ErrNoNode):
		e.s.forgetNodes(barrier.Path)
		return errRetry // the session is over, or somebody deleted its barrier
	case errors.Is(j.err, zk.ErrBadVersion):
		return errRetry // somebody entered
	case errors.Is(j.err, zk.ErrNoNode):
		e.b.lines.gone(e.c.Key)
		return errRetry
	}
	return j.err
}

// repeat renews a claim that is in line and answers its ticket.
func (e *entry) repeat(ctx context.Context) (driver.Ticket, error) {
	p, ok := e.own.position()
	if !ok {
		return driver.Ticket{}, errRetry
	}
	r := renewal{claim: e.own, from: p, ttl: e.s.lease(e.c.TTL)}
	if err := e.b.renewBatch(ctx, e.s, []renewal{r})[0]; err != nil {
		if driver.Gone(err) && e.own.tombstone() == nil {
			return driver.Ticket{}, errRetry // it is not in line any more
		}
		return driver.Ticket{}, err
	}
	return e.look(ctx)
}

// look reads the line and says where the claim stands in it.
func (e *entry) look(ctx context.Context) (driver.Ticket, error) {
	t, ahead, err := e.b.standingOf(ctx, e.s, e.c, e.own)
	if err != nil {
		return driver.Ticket{}, err
	}
	for i := range ahead {
		if ahead[i].semaphore() != (e.c.Capacity != driver.RW) {
			return driver.Ticket{}, e.withdraw(ctx, driver.ErrKind)
		}
	}
	if !t.Granted && t.Ahead <= fewAhead {
		if t.Head, err = e.b.describeHead(ctx, e.s, e.own, t.Ahead); err != nil {
			return driver.Ticket{}, err
		}
	}
	return t, nil
}

// withdraw takes a claim that may not stay out of the line again, and answers why.
func (e *entry) withdraw(ctx context.Context, why error) error {
	p, ok := e.own.position()
	if !ok {
		return why
	}
	if _, err := e.b.remove(ctx, e.s, &removal{key: e.c.Key, node: p.node}); err != nil {
		return fmt.Errorf("%w; its node could not be deleted yet: %w", why, err)
	}
	e.own.forget()
	return why
}

// standingOf reads the line and says where c stands in it, with the mark if it is
// granted. It returns the claims ahead, too.
func (b *Backend) standingOf(
	ctx context.Context, s *session, of driver.Claim, c *claim,
) (t driver.Ticket, ahead []member, err error) {
	_, generation := b.conn.state()
	p, ok := c.position()
	if !ok {
		return t, nil, c.whyGone()
	}
	l, err := b.readLine(ctx, s, of.Key)
	at := -1
	if err == nil {
		at = l.index(path.Base(p.node))
	} else if !errors.Is(err, zk.ErrNoNode) {
		return t, nil, err
	}
	if at < 0 {
		// Our own node is among what this session has seen: it was deleted.
		return t, nil, b.nodeGone(ctx, s, c, p)
	}
	ahead = l.members[:at]
	st := stand(l.members, at)
	if !st.granted {
		c.blocked(l.members, at, generation)
		return c.ticket(of, st, ""), ahead, nil
	}
	var mark driver.Mark
	if l.marked {
		// Read after the grant: what those before left, they wrote before they went.
		r, err := b.readMark(ctx, s, of.Key)
		if err != nil {
			return t, nil, err
		}
		mark = driver.Mark(r.Mark)
	}
	c.grant()
	return c.ticket(of, st, mark), ahead, nil
}

// ticket is the answer for a claim in line.
func (c *claim) ticket(of driver.Claim, at standing, mark driver.Mark) driver.Ticket {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	of.TTL = c.ttl
	token, _ := tokenOf(c.at.czxid)
	return driver.Ticket{
		Claim: of, Token: token, Granted: at.granted, Ahead: at.ahead, Mixed: at.mixed, Left: c.ttl, Mark: mark,
	}
}

// blocked notes whom c waits for, as of now.
func (c *claim) blocked(ms []member, at, generation int) {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.wait.read, c.wait.generation = time.Now(), generation
	c.wait.watches = nil
	c.wait.first, c.wait.blockers = ms[0], blockers(ms, at)
}
