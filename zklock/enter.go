package zklock

import (
	"context"
	"errors"
	"fmt"
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
	if err := check(&c); err != nil {
		return driver.Ticket{}, &driver.PermanentError{Err: err}
	}
	t, err := b.enter(ctx, c)
	return t, failed(ctx, "entering the line of", c.Key, err)
}

func (b *Backend) enter(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
	p, err := b.take(ctx, ref{c.Key, c.ID})
	if err != nil {
		return driver.Ticket{}, err
	}
	e := &entry{b: b, p: p, c: c}
	t, err := e.run(ctx)
	if !e.handed {
		b.release(p)
	}
	return t, err
}

// entry is one Enter under way. It holds p.
type entry struct {
	b      *Backend
	p      *place
	c      driver.Claim
	conn   client
	s      *session
	fresh  bool // the container was made by this Enter
	handed bool // p is held by somebody else now
}

// again says that the step has to be judged anew: what it was based on changed.
var errAgain = errors.New("the line changed meanwhile")

func (e *entry) run(ctx context.Context) (driver.Ticket, error) {
	for {
		if err := ctx.Err(); err != nil {
			return driver.Ticket{}, err
		}
		if x := e.resting(); x != nil {
			return driver.Ticket{}, *x
		}
		var err error
		if e.conn, e.s, err = e.b.live(ctx); err != nil {
			return driver.Ticket{}, err
		}
		t, err := e.step(ctx)
		if err == nil || !errors.Is(err, errAgain) {
			return t, err
		}
	}
}

// resting says why the ID may not enter, if it may not.
func (e *entry) resting() *driver.ErrGone {
	e.b.mu.Lock()
	defer e.b.mu.Unlock()
	if x := e.b.rests[e.p.ref]; x != nil {
		return &x.gone
	}
	return nil
}

func (e *entry) step(ctx context.Context) (driver.Ticket, error) {
	if _, s, ok := e.b.inLine(e.p); ok {
		if s != e.s {
			return driver.Ticket{}, errNoSession // its end is being noted
		}
		return e.repeat(ctx)
	}
	if e.p.unsure != nil {
		found, err := e.resolve(ctx)
		if err != nil {
			return driver.Ticket{}, err
		}
		if found {
			return e.repeat(ctx)
		}
	}
	e.fresh = false
	known, version := e.b.resume(e.c.Key)
	switch {
	case e.c.NoWait && version >= 0:
		// Nobody has entered since we left, or the join fails.
	case known && !e.c.NoWait:
		version = -1 // any
	default:
		known, version = false, -1
		line := e.b.lineOf(e.c.Key)
		_, err := e.conn.CreateContainer(line, e.b.acl).wait(ctx, e.b)
		switch {
		case err == nil:
			e.fresh = true
			version = 0 // nobody has entered before us, or the join fails
		case errors.Is(err, zk.ErrNodeExists):
			e.b.learn(e.c.Key, true)
		case errors.Is(err, zk.ErrNoNode):
			e.b.unready(ctx, e.s) // the Prefix is gone
			return driver.Ticket{}, errAgain
		default:
			return driver.Ticket{}, err
		}
	}
	if e.c.NoWait && version < 0 {
		// The answer to the request before came after everything that others were
		// told, so what is read now is not older than their calls.
		stat, err := e.mayJoin(ctx)
		if err != nil {
			return driver.Ticket{}, err
		}
		version = stat.Version
	}
	t, err := e.join(ctx, version)
	if err != nil && e.fresh && !e.handed {
		e.b.tidy(e.c.Key)
	}
	return t, err
}

// tidy deletes the container of a line behind, if nobody is in it: the server clears away
// only those that somebody was in. An Enter that still finds it gone makes it again.
func (b *Backend) tidy(key string) {
	b.background(func(ctx context.Context) {
		conn, _, err := b.connected(ctx)
		if err != nil {
			return
		}
		if _, err := conn.Delete(b.lineOf(key), -1).wait(ctx, b); err == nil {
			b.learn(key, false)
		}
	})
}

// mayJoin refuses a claim that does not wait, and writes nothing. It returns the
// state of the line for which it answered.
func (e *entry) mayJoin(ctx context.Context) (*zk.Stat, error) {
	l, err := e.b.readLine(ctx, e.conn, e.c.Key)
	if errors.Is(err, zk.ErrNoNode) {
		return nil, errAgain
	}
	if err != nil {
		return nil, err
	}
	sum := e.c.Weight
	for i := range l.members {
		if l.members[i].semaphore() != (e.c.Capacity != driver.RW) {
			return nil, driver.ErrKind
		}
		sum += l.members[i].weight
	}
	if sum <= e.c.Capacity {
		return l.stat, nil
	}
	busy, err := e.b.busy(ctx, e.conn, e.c.Key, &l.members[0], len(l.members))
	if errors.Is(err, zk.ErrNoNode) {
		return nil, errAgain
	}
	if err != nil {
		return nil, err
	}
	return nil, busy
}

// join makes the claim's node. With a version the line must be as it was when it
// had that version.
func (e *entry) join(ctx context.Context, version int32) (driver.Ticket, error) {
	b, p, s := e.b, e.p, e.s
	line := b.lineOf(e.c.Key)
	ttl := s.lease(e.c.TTL)
	p.card = card{Format: format, Owner: e.c.Owner, Note: e.c.Note, Span: e.c.Span, TTL: ttl.Milliseconds(), AtOnce: version >= 0}
	rs, err := e.send(ctx, []any{
		&zk.CheckVersionRequest{Path: s.path(b, "f"), Version: s.fenceVersion()},
		// Of the line as it was before this step, of any version if that is -1.
		&zk.SetDataRequest{Path: line, Version: version},
		&zk.CreateRequest{Path: line + "/" + nameOf(&e.c), Data: p.card.write(), Acl: b.acl, Flags: zk.FlagEphemeralSequential},
	})
	if err != nil {
		return driver.Ticket{}, err
	}
	stat := rs[1].Stat // of the line, just before the claim's node was made in it
	b.settle(p, s, rs[2].String, stat.Mzxid, ttl)
	if _, err := tokenOf(stat.Mzxid); err != nil {
		return driver.Ticket{}, e.withdraw(ctx, err)
	}
	b.learn(e.c.Key, true)
	if stat.NumChildren == 0 {
		b.mu.Lock()
		p.shared = false
		p.granted = true
		p.version = stat.Version
		if !p.card.AtOnce {
			p.late = time.Now()
		}
		b.mu.Unlock()
		return b.ticket(e.c, p, standing{granted: true}, "", nil), nil
	}
	t, err := e.look(ctx)
	if err != nil {
		return driver.Ticket{}, err
	}
	if e.c.NoWait && !t.Granted {
		// The line was made anew and came to the same version meanwhile.
		busy := t.Head
		if busy == nil {
			busy = &driver.BusyError{Ahead: t.Ahead}
		}
		return driver.Ticket{}, e.withdraw(ctx, busy)
	}
	return t, nil
}

// send sends the request that makes the claim's node. If nobody knows whether it
// was applied, p is left unsure.
func (e *entry) send(ctx context.Context, ops []any) ([]zk.MultiResponse, error) {
	b, p, s, conn := e.b, e.p, e.s, e.conn
	b.mu.Lock()
	p.pending = true
	b.mu.Unlock()
	answers := conn.Multi(ops...)
	take := func(a answer[[]zk.MultiResponse]) ([]zk.MultiResponse, error) {
		b.mu.Lock()
		p.pending = false
		if a.err != nil && !answered(a.err) {
			p.unsure = s
		}
		b.mu.Unlock()
		if a.err == nil {
			return a.t, nil
		}
		return nil, e.explain(ctx, a.t, a.err)
	}
	select {
	case a := <-answers:
		return take(a)
	case <-b.closed:
		return nil, driver.ErrClosed
	case <-ctx.Done():
	}
	// The caller goes; the answer is still to come, and p is held until it has.
	e.handed = true
	go func() {
		var a answer[[]zk.MultiResponse]
		select {
		case a = <-answers:
		case <-b.closed:
			return
		}
		if rs, err := take(a); err == nil {
			b.settle(p, s, rs[2].String, rs[1].Stat.Mzxid, s.lease(e.c.TTL))
		} else if e.fresh {
			b.tidy(e.c.Key)
		}
		b.release(p)
	}()
	return nil, ctx.Err()
}

// explain says what a refused join means.
func (e *entry) explain(ctx context.Context, rs []zk.MultiResponse, err error) error {
	if !answered(err) || len(rs) == 0 {
		return err
	}
	at := 0
	for at < len(rs) && rs[at].Error == nil {
		at++
	}
	switch {
	case at == 0 && errors.Is(err, zk.ErrBadVersion):
		return errAgain // the fence was raised; this Enter was not applied
	case at == 0 && errors.Is(err, zk.ErrNoNode):
		if !e.s.ended() {
			e.b.unready(ctx, e.s)
		}
		return errAgain
	case errors.Is(err, zk.ErrBadVersion):
		return errAgain // somebody entered
	case errors.Is(err, zk.ErrNoNode):
		e.b.learn(e.c.Key, false) // the container is gone
		return errAgain
	}
	return err
}

// resolve finds out what became of an Enter whose answer was lost.
func (e *entry) resolve(ctx context.Context) (found bool, err error) {
	if e.p.unsure != e.s {
		// Its session is over. What it may have made ends with it, and is not ours.
		e.b.forget(e.p)
		return false, nil
	}
	if err := e.b.bump(ctx, e.conn, e.s); err != nil {
		return false, err
	}
	m, err := e.b.seek(ctx, e.conn, e.p.ref)
	if err != nil {
		return false, err
	}
	if m != nil && m.owner == e.s.id {
		e.b.settle(e.p, e.s, m.path, m.czxid, e.s.lease(e.c.TTL))
		e.p.card = m.card
		return true, nil
	}
	e.b.forget(e.p)
	return false, nil
}

// repeat renews a claim that is in line and answers its ticket.
func (e *entry) repeat(ctx context.Context) (driver.Ticket, error) {
	path, s, _ := e.b.inLine(e.p)
	ttl := s.lease(e.c.TTL)
	errs := e.b.renew(ctx, e.conn, s, []*place{e.p}, []string{path}, []time.Duration{ttl})
	if errs[0] != nil {
		if driver.Gone(errs[0]) && e.resting() == nil {
			return driver.Ticket{}, errAgain // it is not in line any more
		}
		return driver.Ticket{}, errs[0]
	}
	return e.look(ctx)
}

// look reads the line and says where the claim stands in it.
func (e *entry) look(ctx context.Context) (driver.Ticket, error) {
	t, at, l, err := e.b.standingOf(ctx, e.conn, e.c, e.p)
	if err != nil {
		return driver.Ticket{}, err
	}
	for i := range at {
		if l.members[i].semaphore() != (e.c.Capacity != driver.RW) {
			return driver.Ticket{}, e.withdraw(ctx, driver.ErrKind)
		}
	}
	if !t.Granted && at <= fewAhead {
		if t.Head, err = e.b.headOf(ctx, e.conn, e.p, t.Ahead); err != nil {
			return driver.Ticket{}, err
		}
	}
	return t, nil
}

// withdraw takes a claim that may not stay out of the line again, and answers why.
func (e *entry) withdraw(ctx context.Context, why error) error {
	path, _, ok := e.b.inLine(e.p)
	if !ok {
		return why
	}
	_, err := e.b.remove(ctx, e.conn, &removal{p: e.p, path: path, key: e.c.Key})
	if err != nil {
		return fmt.Errorf("%w; its node could not be deleted yet: %w", why, err)
	}
	e.b.forget(e.p)
	return why
}

// ticket is what a claim in line is answered.
func (b *Backend) ticket(c driver.Claim, p *place, at standing, mark driver.Mark, head *driver.BusyError) driver.Ticket {
	b.mu.Lock()
	defer b.mu.Unlock()
	c.TTL = p.ttl
	token, _ := tokenOf(p.czxid)
	t := driver.Ticket{
		Claim: c, Token: token, Granted: at.granted, Ahead: at.ahead, Mixed: at.mixed,
		Left: p.ttl, Head: head,
	}
	if at.granted {
		t.Mark = mark
	}
	return t
}
