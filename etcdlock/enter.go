package etcdlock

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/etcdlock/internal/reply"
	"github.com/fencelock/fencelock/internal/driverutil"
)

// The recipe, in the order in which a claim goes through it:
//
//  1. Enter puts the claim's key on a lease, and reads in the same transaction which
//     claims are older. The create revision of the key is the claim's place in line, and
//     its token is that revision << 16, or, in a line that has followed another store, the
//     next one of its epoch (epoch.go). If no older claim blocks it, the claim is granted.
//  2. Await (await.go) reads which key blocks the claim, and watches that key.
//  3. When that key is deleted, Await checks again: the claim's own key is still the one
//     that Enter made, its lease has time left, and nothing older blocks it.
//  4. Renew (renew.go) keeps the lease alive and reads the claim's own key.
//  5. Leave (leave.go) deletes the key if it is still the one that Enter made.
//
// Two goroutines of one Backend are two claims with two keys: unlike etcd's concurrency
// package, which excludes sessions from one another, and not their goroutines.

// maxAttempts is how often a step is tried again because another claim was faster. Each
// time another claim has made progress.
const maxAttempts = 100

var (
	errRaced = errors.New("too many others are coming and going")
	// errFirstChanged says that a claim was not put because the first of the line changed.
	errFirstChanged = errors.New("the first claim of the line has changed")
)

// Enter joins the line of c.Key, or starts again the lease of the claim with c.ID
// that is there already. It costs one transaction, and one more request when the lease
// for this TTL is new or old.
func (b *Backend) Enter(ctx context.Context, c driver.Claim) (t driver.Ticket, err error) {
	known := b.keys.name(driverutil.Ref(c.Key, c.ID)) != ""
	err = b.call(ctx, reply.Write, "entering the line of", c.Key, func(ctx context.Context) (err error) {
		if err = c.Validate(b.Info()); err == nil {
			c.TTL, c.WaitTTL = driverutil.Lease(&c, false), 0
			t, err = b.enter(ctx, &c)
		}
		return err
	})
	switch {
	case err == nil:
	case known && errors.Is(err, driver.ErrReused): // the claim in line keeps its name
	case known && driverutil.RefusedForNow(err): // so does one that an earlier Enter has put
	case isAnswer(err), driverutil.RefusedForNow(err):
		b.keys.refused(driverutil.Ref(c.Key, c.ID))
	default:
		b.keys.enterPending(driverutil.Ref(c.Key, c.ID))
	}
	return t, err
}

func (b *Backend) enter(ctx context.Context, c *driver.Claim) (driver.Ticket, error) {
	for range maxAttempts {
		t, err := b.enterOnce(ctx, c)
		switch {
		case leaseEnded(err), errors.Is(err, errEnded):
			// The claim is not in line, and joins anew.
		case errors.Is(err, errNameTaken) && b.keys.collided(b.line(c.Key), c):
		default:
			return t, err
		}
	}
	return driver.Ticket{}, errRaced
}

// enterOnce is one attempt of Enter.
func (b *Backend) enterOnce(ctx context.Context, c *driver.Claim) (driver.Ticket, error) {
	first := b.keys.name(driverutil.Ref(c.Key, c.ID)) == ""
	l, err := b.leaseFor(ctx, c.TTL, c.Named)
	if errors.Is(err, rpctypes.ErrNoSpace) {
		return driver.Ticket{}, driver.Refused(err) // a lease without a key ends by itself
	}
	if err != nil {
		return driver.Ticket{}, err
	}
	sent := time.Now()
	p, err := b.join(ctx, c, l)
	if errors.Is(err, rpctypes.ErrNoSpace) {
		return driver.Ticket{}, b.noSpace(ctx, p.name, l, first || c.Named, err)
	}
	if leaseEnded(err) {
		b.leases.forget(l.id)
	}
	if err == nil && p.own != nil {
		t, err := b.enterAgain(ctx, c, p)
		return t, unsure(err)
	}
	var t driver.Ticket
	if err == nil {
		t, err = b.joined(c, p, l, sent)
	}
	if err != nil && p.rev > 0 {
		// A damaged record, for example. The caller will not leave, so the claim leaves here.
		own := driver.Ticket{Claim: *c, Token: tokenOf(p.rev)}
		if _, failed := b.deleteOwn(ctx, &own); failed != nil {
			err = unsure(failed)
		}
	}
	return t, err
}

// noSpace takes a key out again whose put was answered with err, an ErrNoSpace. A server that finds
// out that it has no space while it applies a put has put the key nevertheless. A deletion takes no
// space. If an earlier Enter may have put the same key on the same lease, the key stays.
func (b *Backend) noSpace(ctx context.Context, name string, l *lease, ours bool, err error) error {
	if !ours {
		return unsure(err)
	}
	_, failed := b.etcd.Txn(ctx).
		If(clientv3.Compare(clientv3.LeaseValue(name), "=", l.id)).
		Then(clientv3.OpDelete(name)).
		Commit()
	if failed != nil {
		return unsure(err)
	}
	return driver.Refused(err)
}

// joined answers an Enter that has put its claim.
func (b *Backend) joined(c *driver.Claim, p *position, l *lease, sent time.Time) (driver.Ticket, error) {
	// A put does not start its lease again: the server counts from the last keep-alive.
	left := l.left(sent)
	if left <= 0 || !c.Named && b.leases.find(l.id) != l {
		return driver.Ticket{}, errors.New("its lease ended while the claim was joining the line")
	}
	return entered(c, p, l.ttl, left)
}

// enterAgain answers an Enter whose claim is in line already. It starts the lease again,
// because the answer to the Enter before may have been lost, and the caller counts from
// this one.
func (b *Backend) enterAgain(ctx context.Context, c *driver.Claim, p *position) (driver.Ticket, error) {
	var r record
	if err := decode(p.own, &r); err != nil {
		return driver.Ticket{}, err
	}
	if err := driverutil.CheckFound(c.Capacity, c.Weight, r.Capacity, r.Weight); err != nil {
		return driver.Ticket{}, err
	}
	t := driver.Ticket{Claim: *c, Token: tokenOf(p.own.CreateRevision)}
	ttl, err := b.renewAlone(ctx, &t)
	left := ttl // the keep-alive was sent after this Enter
	if notice := noticeIn(err); notice != nil {
		ttl, left, err = c.TTL, notice.Left, nil
	}
	if err != nil {
		return driver.Ticket{}, err
	}
	p, err = b.check(ctx, &t, p.own.CreateRevision)
	if err != nil {
		return driver.Ticket{}, err
	}
	return entered(c, p, ttl, left)
}

// entered answers an Enter.
func entered(c *driver.Claim, p *position, ttl, left time.Duration) (driver.Ticket, error) {
	t, err := p.ticket(c)
	t.TTL, t.Left = ttl, left
	return t, err
}

// join puts the claim's key on the lease l, and reads its position. The position has own
// set if the claim was in line already.
func (b *Backend) join(ctx context.Context, c *driver.Claim, l *lease) (*position, error) {
	p := &position{line: b.line(c.Key)}
	p.name = b.keys.take(p.line, c)
	r := newRecord(c, l.ttl)
	if c.After > 0 {
		if err := b.openEpoch(ctx, p); err != nil {
			return p, err
		}
	} else if free, err := b.putFree(ctx, p, r.put(p.name, l)); free || err != nil {
		return p, err
	}
	room := p.line.blockers(c).empty()
	for range maxAttempts {
		joined, err := b.putInto(ctx, c, p, &r, l, room)
		if joined || err != nil {
			return p, err
		}
		if err := b.findNotice(ctx, p); err != nil {
			return p, err
		}
		refusal := p.refusal(c)
		if errors.Is(refusal, errFirstChanged) {
			continue
		}
		if !isBusy(refusal) || !p.granted {
			return p, refusal
		}
		// The semaphore is partly taken, and has room for c. A claim that leaves makes
		// more room; nobody may join.
		room = p.line.claims().noneAfter(p.at)
	}
	return p, errRaced
}

// putFree puts a claim into a line without any key, where one comparison stands for all
// that join needs. BenchmarkFreeLock takes a quarter longer without it.
func (b *Backend) putFree(ctx context.Context, p *position, put clientv3.Op) (free bool, err error) {
	answer, err := b.etcd.Txn(untimed{ctx}).
		If(p.line.unmarked().empty()).
		Then(clientv3.OpGet(p.line.mark()), put).
		Else(p.line.claims().first(), clientv3.OpGet(p.line.epoch())).
		Commit()
	if err != nil {
		return false, err
	}
	if !answer.Succeeded {
		p.head, p.epoch = first(found(answer, 0)), first(found(answer, 1))
		return false, nil
	}
	p.rev, p.granted, p.mark = answer.Header.Revision, true, first(found(answer, 0))
	return true, nil
}

// putInto is one attempt of join. It reports whether the claim was put. The comparisons,
// the reads and the put are one transaction: what is read is all that is ahead of the
// claim. A claim with NoWait is put only if there is room.
func (b *Backend) putInto(
	ctx context.Context, c *driver.Claim, p *position, r *record, l *lease, room clientv3.Cmp,
) (joined bool, err error) {
	ifs := []clientv3.Cmp{absent(p.name), absent(p.line.tombstone(c.ID)), p.sameKind(c)}
	ifs = append(ifs, unchanged(p.line.epoch(), p.epoch))
	if c.NoWait {
		ifs = append(ifs, room)
	}
	puts, err := p.draw(c, r, l)
	if err != nil {
		return false, err
	}
	reads := append(p.reads(c), clientv3.OpGet(p.line.epoch()))
	ofLine := len(reads)
	for _, name := range p.line.otherNames(c) {
		ifs, reads = append(ifs, absent(name)), append(reads, clientv3.OpGet(name))
	}
	answer, err := b.etcd.Txn(ctx).If(ifs...).Then(append(slices.Clip(reads), puts...)...).Else(reads...).Commit()
	if err != nil {
		return false, err
	}
	p.at = answer.Header.Revision
	if answer.Succeeded {
		p.rev, p.token = p.at, r.Token
		b.keys.drew(driverutil.Ref(c.Key, c.ID), p)
	} else {
		p.epoch = first(found(answer, ofLine-1))
	}
	for i := ofLine; i < len(reads); i++ {
		p.reused = p.reused || len(found(answer, i)) > 0
	}
	return answer.Succeeded, p.fill(c, answer)
}
