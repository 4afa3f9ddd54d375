package etcdlock

import (
	"cmp"
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/driverutil"
)

// maxAhead is how many claims ahead of a writer or reader are counted. For a longer
// line the answer is the length of the line.
const maxAhead = 128

// position is a claim's place in its line, as of one revision.
type position struct {
	line line
	name string // the claim's key; "" if it is not known
	at   int64  // the revision of the read
	rev  int64  // the revision that created the claim; 0 if it is not known
	// token is the number that the claim has drawn by the epoch of its line; 0 if its token comes from rev.
	token int64

	own       *keyValue // the claim; nil if it is not in line
	under     *keyValue // what has the name: own, or another claim
	tombstone *keyValue
	head      *keyValue // the first claim of the line
	mark      *keyValue
	epoch     *keyValue
	notice    *driver.GoneError // if the claim is under notice
	count     int               // claims in line
	ahead     int
	granted   bool
	reused    bool // a claim of another class has the ID

	blocker string           // writer or reader that waits: the claim that it waits for
	weights map[string]int64 // claim on a semaphore: the weights of the claims ahead
	excess  int64            // claim on a semaphore: how much of these weights must leave
}

// positionOf is the position of c before anything was read. rev is the revision of its
// claim, or 0 if that is not known.
func (b *Backend) positionOf(c *driver.Claim, rev int64) *position {
	return &position{line: b.line(c.Key), name: b.keys.name(driverutil.Ref(c.Key, c.ID)), rev: rev}
}

// ownKey reads the claim's key. If its name is not known, it reads all keys that may
// belong to the claim.
func (p *position) ownKey() clientv3.Op {
	switch {
	case p.name != "":
		return clientv3.OpGet(p.name)
	case p.rev > 0:
		return p.line.claims().read(clientv3.WithMinCreateRev(p.rev), clientv3.WithMaxCreateRev(p.rev))
	}
	return p.line.claims().read()
}

// reads are the operations whose answers fill takes.
func (p *position) reads(c *driver.Claim) []clientv3.Op {
	ops := []clientv3.Op{p.ownKey(), clientv3.OpGet(p.line.tombstone(c.ID)), clientv3.OpGet(p.line.mark())}
	if c.Capacity < driver.RW {
		return append(ops, p.line.claims().read()) // the server cannot add weights
	}
	older := []clientv3.OpOption{clientv3.WithKeysOnly()}
	if p.rev > 0 {
		older = append(older, clientv3.WithMaxCreateRev(p.rev-1))
	}
	return append(ops,
		p.line.claims().first(),
		p.line.claims().read(append(older, clientv3.WithLimit(maxAhead))...),
		p.line.blockers(c).read(append(older, clientv3.WithLastCreate()...)...),
	)
}

// fill takes the answers to reads.
func (p *position) fill(c *driver.Claim, answer *clientv3.TxnResponse) error {
	own := found(answer, 0)
	p.own, p.tombstone, p.mark = withID(own, c.ID), first(found(answer, 1)), first(found(answer, 2))
	if p.own != nil {
		p.name, p.under = string(p.own.Key), p.own
		var r record
		if decode(p.own, &r) == nil {
			p.token = r.Token
		}
	} else if p.name != "" {
		p.under = first(own)
	}
	p.head, p.count = first(found(answer, 3)), int(answer.Responses[3].GetResponseRange().Count)
	if c.Capacity < driver.RW {
		if p.own != nil {
			p.rev = p.own.CreateRevision
		}
		return p.weigh(c, found(answer, 3))
	}
	older := answer.Responses[4].GetResponseRange()
	if p.ahead = len(older.Kvs); older.More {
		p.ahead = p.count
	}
	blocker := first(found(answer, 5))
	p.granted = blocker == nil
	if blocker != nil {
		p.blocker = string(blocker.Key)
	}
	return nil
}

// weigh grants c, a claim on a semaphore, if its weight and the weights of all older
// claims fit.
func (p *position) weigh(c *driver.Claim, claims []*keyValue) error {
	p.weights, p.excess = make(map[string]int64), c.Weight-c.Capacity
	p.ahead = 0
	for _, kv := range claims {
		var r record
		if err := decode(kv, &r); err != nil {
			return err
		}
		if p.rev == 0 || kv.CreateRevision < p.rev {
			p.weights[string(kv.Key)] = r.Weight
			p.excess += r.Weight
			p.ahead++
		}
	}
	p.granted = p.excess <= 0
	return nil
}

// locate reads the position of c. rev is the revision of its claim, or 0 if that is not
// known. It answers GoneError if c is not in line.
func (b *Backend) locate(ctx context.Context, c *driver.Claim, rev int64) (*position, error) {
	for range maxAttempts {
		p := b.positionOf(c, rev)
		answer, err := b.etcd.Txn(ctx).Then(p.reads(c)...).Commit()
		if err != nil {
			return nil, err
		}
		p.at = answer.Header.Revision
		if err := p.fill(c, answer); err != nil {
			return nil, err
		}
		if p.own == nil && p.tombstone == nil && p.name == "" && rev > 0 {
			rev = 0 // a token of an epoch does not tell the revision
			continue
		}
		if err := b.findNotice(ctx, p); err != nil {
			return nil, err
		}
		if p.own == nil || p.ended() {
			return p, goneFor(p.tombstone)
		}
		if p.own.CreateRevision == p.rev {
			b.keys.drew(driverutil.Ref(c.Key, c.ID), p)
			return p, nil
		}
		rev = p.own.CreateRevision // the claims ahead were read for another revision
	}
	return nil, errRaced
}

// refusal says why c was not put. It is nil if c is in line already.
func (p *position) refusal(c *driver.Claim) error {
	switch {
	case p.ended():
		return goneFor(p.tombstone)
	case p.own != nil:
		return nil
	case p.reused:
		return driver.ErrReused
	case p.under != nil:
		return errNameTaken
	}
	if err := p.checkKind(c); err != nil {
		return err
	}
	if !c.NoWait || p.head == nil {
		return errFirstChanged
	}
	busy, err := p.busy(p.count)
	if err != nil {
		return err
	}
	return busy
}

// checkKind returns ErrKind if the first claim of the line has another capacity than c.
func (p *position) checkKind(c *driver.Claim) error {
	if p.head == nil {
		return nil
	}
	var r record
	return cmp.Or(decode(p.head, &r), driverutil.CheckKind(c.Capacity, r.Capacity))
}

// sameKind compares that the line is of the kind of c. A key tells permits from others, and
// nothing of the size: so the first claim, of which the size was read, must still be there.
func (p *position) sameKind(c *driver.Claim) clientv3.Cmp {
	switch {
	case classOf(c) != classPermit:
		return p.line.permits().empty()
	case p.head == nil || p.checkKind(c) != nil:
		return p.line.claims().empty()
	}
	return createdAt(string(p.head.Key), p.head.CreateRevision)
}

// busy describes the first claim of the line to a claim with that many ahead.
func (p *position) busy(ahead int) (*driver.BusyError, error) {
	var r record
	if err := decode(p.head, &r); err != nil {
		return nil, err
	}
	return &driver.BusyError{
		Standing: driver.Standing{
			Claim: driver.Claim{Owner: r.Owner, Note: r.Note, Trace: r.Trace},
			Token: r.token(p.head.CreateRevision),
			Since: time.UnixMilli(r.Since),
			Left:  r.left(),
		},
		Ahead: ahead,
	}, nil
}

// ticket describes the position. TTL and Left are the caller's to set.
func (p *position) ticket(c *driver.Claim) (driver.Ticket, error) {
	t := driver.Ticket{Claim: *c, Token: cmp.Or(p.token, tokenOf(p.rev)), Granted: p.granted}
	var err error
	switch {
	case !p.granted:
		t.Ahead = p.ahead
		if p.head != nil {
			t.Head, err = p.busy(p.ahead)
		}
	case p.mark != nil:
		var m markRecord
		err = decode(p.mark, &m)
		t.Mark = string(m.Mark)
	}
	return t, err
}
