package etcdlock

import (
	"context"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock/driver"
)

// The recipe, in the order in which a claim goes through it:
//
//  1. Enter puts the claim's key on a lease, and reads in the same transaction which
//     claims are older. The create revision of the key is the claim's place in line and
//     its token. If no older claim blocks it, the claim is granted.
//  2. Await (await.go) watches the key that blocks the claim (watch.go).
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

// grace is how long after the end of its lease a key may still be there.
const grace = 10 * time.Second

var (
	errRaced = errors.New("too many others are coming and going")
	errRetry = errors.New("the key in the way is gone")
)

// Enter joins the line of c.Key, or starts again the lease of the claim with c.ID
// that is there already. It costs one transaction, a second one if the line was empty
// the last time and is not now, and one more request when a lease of this length is to
// be granted.
func (b *Backend) Enter(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
	ctx, end, err := b.begin(ctx)
	if err != nil {
		return driver.Ticket{}, err
	}
	defer end()
	if err := c.Validate(b.Info()); err != nil {
		return driver.Ticket{}, err
	}
	for range maxAttempts {
		t, err := b.enter(ctx, &c)
		if leaseEnded(err) || errors.Is(err, errEnded) || errors.Is(err, errRetry) {
			continue // the claim is not in line, and joins anew
		}
		switch {
		case err == nil:
		case isBusy(err), driver.Gone(err), errors.Is(err, driver.ErrKind):
			b.keys.notInLine(c.Ref(), c.TTL+grace)
		default:
			b.keys.enterPending(c.Ref(), c.TTL+grace)
		}
		return t, b.failed(ctx, "entering the line of", c.Key, err)
	}
	return driver.Ticket{}, b.failed(ctx, "entering the line of", c.Key, errRaced)
}

func isBusy(err error) bool {
	var busy *driver.BusyError
	return errors.As(err, &busy)
}

// enter is one attempt of Enter.
func (b *Backend) enter(ctx context.Context, c *driver.Claim) (driver.Ticket, error) {
	l, err := b.leaseOf(ctx, leaseKind{seconds: wholeSeconds(c.TTL)})
	if err != nil {
		return driver.Ticket{}, err
	}
	sent := time.Now()
	renewed := b.renewOld(l)
	p, err := b.join(ctx, c, l)
	if leaseEnded(err) {
		b.leases.forget(l.id)
	}
	if err != nil {
		return driver.Ticket{}, err
	}
	if p.own != nil {
		return b.enterAgain(ctx, c, p)
	}
	if renewed != nil {
		select {
		case <-renewed:
		case <-ctx.Done():
			return driver.Ticket{}, ctx.Err()
		}
	}
	// A put does not start its lease again: the server counts from the last keep-alive.
	left := l.left(sent)
	if left <= 0 || b.leases.find(l.id) != l {
		return driver.Ticket{}, errors.New("its lease ended while the claim was joining the line")
	}
	return b.entered(c, p, l.ttl, left)
}

// enterAgain answers an Enter whose claim is in line already. It starts the lease again,
// because the answer to the Enter before may have been lost, and the caller counts from
// this one.
func (b *Backend) enterAgain(ctx context.Context, c *driver.Claim, p *position) (driver.Ticket, error) {
	ttl, err := b.prolong(ctx, p.line, c, p.own)
	if err != nil {
		return driver.Ticket{}, err
	}
	p, err = b.locate(ctx, c, p.own.CreateRevision)
	if err != nil {
		return driver.Ticket{}, err
	}
	return b.entered(c, p, ttl, ttl) // the keep-alive was sent after this Enter
}

// entered answers an Enter.
func (b *Backend) entered(c *driver.Claim, p *position, ttl, left time.Duration) (driver.Ticket, error) {
	t, err := p.ticket(c)
	if err != nil {
		return driver.Ticket{}, err
	}
	t.TTL, t.Left = ttl, left
	if !t.Granted {
		b.watches.put(c.Ref(), p.watch())
	}
	return t, nil
}

// joinTxn makes the transaction that puts a claim behind others.
type joinTxn func() (ifs []clientv3.Cmp, then, otherwise []clientv3.Op)

// join puts the claim's key on the lease l, and reads its position. The position has own
// set if the claim was in line already.
func (b *Backend) join(ctx context.Context, c *driver.Claim, l *lease) (*position, error) {
	if c.Capacity < driver.RW {
		return b.joinSemaphore(ctx, c, l)
	}
	return b.joinLock(ctx, c, l)
}

// newKey names the key of c, and puts it.
func (b *Backend) newKey(c *driver.Claim, l *lease) (*position, clientv3.Op) {
	p := &position{line: b.line(c.Key)}
	p.name = b.keys.take(p.line, c)
	return p, clientv3.OpPut(p.name, encode(newRecord(c, l.ttl)), clientv3.WithLease(l.id))
}

// joinLock puts a writer or reader. The comparisons, the reads and the put are one
// transaction: what was there before the put is all that is ahead of the claim.
func (b *Backend) joinLock(ctx context.Context, c *driver.Claim, l *lease) (*position, error) {
	p, put := b.newKey(c, l)
	line := p.line
	blockers := line.blockers(c)
	answer, err := b.putInto(ctx, p, put, func() (ifs []clientv3.Cmp, then, otherwise []clientv3.Op) {
		ifs = []clientv3.Cmp{absent(p.name), absent(line.tombstone(c.ID)), line.permits().empty()}
		if c.NoWait {
			ifs = append(ifs, blockers.empty())
		}
		then = []clientv3.Op{
			line.claims().first(),
			blockers.read(append(clientv3.WithLastCreate(), clientv3.WithKeysOnly())...),
			clientv3.OpGet(line.mark()),
			put,
		}
		return ifs, then, []clientv3.Op{
			line.claims().first(),
			clientv3.OpGet(p.name),
			clientv3.OpGet(line.tombstone(c.ID)),
		}
	})
	if err != nil || p.granted {
		return p, err
	}
	p.head = first(found(answer, 0))
	count := int(answer.Responses[0].GetResponseRange().Count)
	if !answer.Succeeded {
		return p, b.notPut(c, p, found(answer, 1), found(answer, 2), count)
	}
	p.rev, p.ahead, p.mark = p.at, count, first(found(answer, 2))
	p.blockedBy(first(found(answer, 1)))
	return p, nil
}

// joinSemaphore puts a claim on a semaphore. The server cannot compare weights. A claim
// that waits needs no comparison of them. A claim with NoWait is put only if no claim is
// in line, or if the line was read and had room, and no claim has joined since. (A claim
// that leaves meanwhile makes more room.)
func (b *Backend) joinSemaphore(ctx context.Context, c *driver.Claim, l *lease) (*position, error) {
	line := b.line(c.Key)
	room := line.permits().empty()
	for range maxAttempts {
		p, put := b.newKey(c, l)
		answer, err := b.putInto(ctx, p, put, func() (ifs []clientv3.Cmp, then, otherwise []clientv3.Op) {
			ifs = []clientv3.Cmp{absent(p.name), absent(line.tombstone(c.ID)), line.shared().empty()}
			if c.NoWait {
				ifs = append(ifs, room)
			}
			return ifs, []clientv3.Op{line.permits().read(), clientv3.OpGet(line.mark()), put},
				[]clientv3.Op{line.claims().read(), clientv3.OpGet(p.name), clientv3.OpGet(line.tombstone(c.ID))}
		})
		if err != nil || p.granted {
			return p, err
		}
		claims := found(answer, 0)
		if answer.Succeeded {
			p.rev, p.mark = p.at, first(found(answer, 1))
			return p, p.weigh(c, claims)
		}
		p.head = first(claims)
		refusal := b.notPut(c, p, found(answer, 1), found(answer, 2), len(claims))
		if !isBusy(refusal) {
			return p, refusal
		}
		p.rev = p.at + 1 // a claim that joined now would stand behind all of these
		if err := p.weigh(c, claims); err != nil {
			return nil, err
		}
		if !p.granted {
			return p, refusal
		}
		room = line.permits().noneAfter(p.at)
	}
	return nil, errRaced
}

// notPut says why the claim was not put: under is what has its name, and n claims are in
// line. It is nil if the claim is in line already.
func (b *Backend) notPut(c *driver.Claim, p *position, under, tombstones []*keyValue, n int) error {
	p.own, p.tombstone = withID(under, c.ID), first(tombstones)
	if p.own == nil && p.tombstone == nil && len(under) > 0 {
		// A claim that was given up has arrived late, and has the name. If this claim may
		// arrive late too, it must not get a second name: it is given up.
		if !b.keys.collided(c.Ref()) {
			return errNameTaken
		}
		return errRetry
	}
	return p.refusal(c, n)
}

// putInto puts a claim's key. If the line has no key at all, one comparison is enough
// and p is granted, without an answer. Otherwise it returns the answer to join. join is
// sent along with the first transaction if the line had keys the last time, and in a
// second one if not: it is long, and would cost a free lock a twentieth.
func (b *Backend) putInto(ctx context.Context, p *position, put clientv3.Op, join joinTxn,
) (*clientv3.TxnResponse, error) {
	ctx = withoutDeadline{ctx}
	free := b.etcd.Txn(ctx).If(p.line.all().empty()).Then(put)
	contended := b.contended.has(p.line)
	if contended {
		free = free.Else(clientv3.OpTxn(join()))
	}
	answer, err := free.Commit()
	if err != nil {
		return nil, err
	}
	p.at = answer.Header.Revision
	if answer.Succeeded {
		p.rev, p.granted = p.at, true
		b.contended.remove(p.line)
		return nil, nil
	}
	if contended {
		return (*clientv3.TxnResponse)(answer.Responses[0].GetResponseTxn()), nil
	}
	b.contended.add(p.line)
	ifs, then, otherwise := join()
	answer, err = b.etcd.Txn(ctx).If(ifs...).Then(then...).Else(otherwise...).Commit()
	if err == nil {
		p.at = answer.Header.Revision
	}
	return answer, err
}

// withoutDeadline is a context that ends as its parent does, and has no deadline to send.
// A member sets a timer for each request with a deadline, which costs a free lock up to a
// twentieth.
type withoutDeadline struct{ context.Context }

func (withoutDeadline) Deadline() (time.Time, bool) { return time.Time{}, false }
