package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock/driver"
)

// mostTries is how often a step is tried again because somebody else was faster.
// Each time another one has got on.
const mostTries = 100

// errRaced says that so many others came and went that a step found no moment.
var errRaced = errors.New("too many others are coming and going")

// Enter joins the line of c.Key, or starts again the lease of the claim with c.ID
// that is there already. It costs one transaction, another one if somebody is in line where
// nobody was the last time, and one more request when a lease of this length is to be granted.
func (b *Backend) Enter(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
	ctx, end, err := b.begin(ctx)
	if err != nil {
		return driver.Ticket{}, err
	}
	defer end()
	if err := check(&c); err != nil {
		return driver.Ticket{}, &driver.PermanentError{Err: err}
	}
	p := place{c.Key, c.ID}
	if b.slots.parts(p) {
		return driver.Ticket{}, errLeft // by a Leave that may still arrive, and would end it
	}
	for range mostTries {
		t, err := b.enter(ctx, c)
		if leaseEnded(err) || errors.Is(err, errEnded) || errors.Is(err, errAgain) {
			continue // somebody revoked it: the claim is not there, and joins anew
		}
		var busy *driver.BusyError
		refused := errors.As(err, &busy)
		switch {
		case refused, driver.Gone(err), errors.Is(err, driver.ErrKind):
			b.slots.gone(p, c.TTL+forgotten)
		case err != nil:
			b.slots.doubt(p, c.TTL+forgotten)
		default:
			b.slots.settled(p)
		}
		if refused {
			return t, err
		}
		return t, b.failed(ctx, "entering the line of", c.Key, err)
	}
	return driver.Ticket{}, b.failed(ctx, "entering the line of", c.Key, errRaced)
}

// check refuses what the core never sends.
func check(c *driver.Claim) error {
	switch {
	case c.Key == "" || len(c.Key) > driver.MaxKey:
		return fmt.Errorf("etcd: a key has 1 to %d bytes, not %d", driver.MaxKey, len(c.Key))
	case c.ID == "":
		return fmt.Errorf("etcd: the claim on %q has no id", c.Key)
	case c.Capacity < 1 || c.Capacity > driver.RW || c.Weight < 1 || c.Weight > c.Capacity:
		return fmt.Errorf("etcd: a claim on %q cannot have weight %d of %d", c.Key, c.Weight, c.Capacity)
	case c.Capacity == driver.RW && c.Weight != 1 && c.Weight != driver.RW:
		return fmt.Errorf("etcd: a claim on the read-write lock %q weighs 1 or %d, not %d", c.Key, driver.RW, c.Weight)
	case c.TTL < minTTL || c.TTL > maxTTL:
		return fmt.Errorf("etcd: the lease on %q must last %v to %v, not %v", c.Key, minTTL, maxTTL, c.TTL)
	case c.Span < 1 || c.Span > driver.MaxSpan:
		return fmt.Errorf("etcd: a claim on %q reserves 1 to %d tokens, not %d", c.Key, driver.MaxSpan, c.Span)
	case c.Ballot != 0:
		return fmt.Errorf("etcd: no ballots are taken, as for %q", c.Key)
	}
	return nil
}

// enter is one attempt of Enter.
func (b *Backend) enter(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
	l, err := b.shared(ctx, class{seconds: seconds(c.TTL)})
	if err != nil {
		return driver.Ticket{}, err
	}
	sent := time.Now()
	fresh := b.refresh(l)
	join := b.joinLine
	if c.Capacity < driver.RW {
		join = b.joinSemaphore
	}
	s, joined, err := join(ctx, &c, l)
	if leaseEnded(err) {
		b.forget(l.id)
	}
	if err != nil {
		return driver.Ticket{}, err
	}
	if !joined {
		return b.repeated(ctx, c, s)
	}
	if fresh != nil {
		select {
		case <-fresh:
		case <-ctx.Done():
			return driver.Ticket{}, ctx.Err()
		}
	}
	left := l.left(sent)
	if left <= 0 || b.ours(l.id) != l {
		return driver.Ticket{}, errors.New("its lease ended while the claim was joining the line")
	}
	return b.admit(&c, s, l.ttl, left)
}

// place finds a name for a claim, and says how it is put there.
func (b *Backend) place(c *driver.Claim, l *lease) (*standing, clientv3.Op) {
	s := &standing{backend: b, line: b.line(c.Key)}
	s.name = b.slots.take(s.line, c)
	r := newRecord(c, l.ttl)
	return s, clientv3.OpPut(s.name, r.encode(), clientv3.WithLease(l.id))
}

// errAgain says that what a claim was not put for is out of the way.
var errAgain = errors.New("what was in the way is gone")

// obstacle looks at what was found under the name of a claim that was not put. It is an
// error if that is neither the claim itself nor why it has to stay out. A claim that may
// arrive under this name must not have another: it is given up, and its user comes as
// a new one.
func (s *standing) obstacle(c *driver.Claim, other *keyValue) error {
	if s.own != nil || s.rest != nil || other == nil {
		return nil
	}
	if !s.backend.slots.collided(place{c.Key, c.ID}) {
		return errStray
	}
	return errAgain
}

// putInto puts a claim into a line of which there is nothing at all: that is one comparison,
// and there is nothing to read. Of this there is no answer: s is granted. Otherwise it
// returns the answer to the full transaction. Where somebody was in line the
// last time, that one goes out within the first; it is long, and not sent in vain elsewhere.
func (s *standing) putInto(ctx context.Context, put clientv3.Op, full func() ([]clientv3.Cmp, []clientv3.Op, []clientv3.Op)) (*clientv3.TxnResponse, error) {
	b := s.backend
	try := b.etcd.Txn(timeless{ctx}).If(s.line.whole().none()).Then(put)
	crowded := b.isCrowded(s.line)
	if crowded {
		try = try.Else(clientv3.OpTxn(full()))
	}
	answer, err := try.Commit()
	if err != nil {
		return nil, err
	}
	s.at = answer.Header.Revision
	if answer.Succeeded {
		s.rev, s.granted = s.at, true
		if crowded {
			b.setCrowded(s.line, false)
		}
		return nil, nil
	}
	if crowded {
		return (*clientv3.TxnResponse)(answer.Responses[0].GetResponseTxn()), nil
	}
	b.setCrowded(s.line, true)
	ifs, then, or := full()
	answer, err = b.etcd.Txn(timeless{ctx}).If(ifs...).Then(then...).Else(or...).Commit()
	if err == nil {
		s.at = answer.Header.Revision
	}
	return answer, err
}

// mostCrowded bounds how many lines are remembered to have somebody in them. To forget
// one costs a request.
const mostCrowded = 4096

func (b *Backend) isCrowded(l lineKeys) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, is := b.crowded[l]
	return is
}

func (b *Backend) setCrowded(l lineKeys, is bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !is {
		delete(b.crowded, l)
		return
	}
	if len(b.crowded) >= mostCrowded {
		clear(b.crowded)
	}
	b.crowded[l] = struct{}{}
}

// joining is how a writer or reader is put behind others.
func (s *standing) joining(c *driver.Claim, put clientv3.Op) ([]clientv3.Cmp, []clientv3.Op, []clientv3.Op) {
	line := s.line
	ifs := []clientv3.Cmp{absent(s.name), absent(line.rest(c.ID)), line.permits().none()}
	blockers := line.writers() // of a reader
	if classOf(c) == classWriter {
		blockers = line.claims()
	}
	if c.NoWait {
		ifs = append(ifs, blockers.none())
	}
	then := []clientv3.Op{
		line.claims().all(clientv3.WithFirstCreate()...),
		blockers.all(append(clientv3.WithLastCreate(), clientv3.WithKeysOnly())...),
		clientv3.OpGet(line.mark()),
		put,
	}
	or := []clientv3.Op{
		line.claims().all(clientv3.WithFirstCreate()...),
		clientv3.OpGet(s.name),
		clientv3.OpGet(line.rest(c.ID)),
	}
	return ifs, then, or
}

// joinLine puts a writer or reader behind the others. The comparisons and the put are
// one step, so nobody comes in between: what was there before the put is all that
// stands ahead.
func (b *Backend) joinLine(ctx context.Context, c *driver.Claim, l *lease) (*standing, bool, error) {
	s, put := b.place(c, l)
	answer, err := s.putInto(ctx, put, func() ([]clientv3.Cmp, []clientv3.Op, []clientv3.Op) { return s.joining(c, put) })
	if err != nil || answer == nil {
		return s, err == nil, err
	}
	head := answer.Responses[0].GetResponseRange()
	if len(head.Kvs) > 0 {
		s.head = head.Kvs[0]
	}
	if !answer.Succeeded {
		s.own, s.rest = ownIn(answer, 1, c.ID), one(answer, 2)
		if err := s.obstacle(c, one(answer, 1)); err != nil {
			return s, false, err
		}
		return s, false, s.refusal(c, int(head.Count))
	}
	s.rev, s.ahead, s.mark = s.at, int(head.Count), one(answer, 2)
	if last := one(answer, 1); last != nil {
		s.blocker = string(last.Key)
	}
	s.granted = s.blocker == ""
	return s, true, nil
}

// joinSemaphore puts a claim on a semaphore behind the others. Weights cannot be
// compared by the server. A claim that waits needs no comparison of them; one that
// does not wait is put only if the line is empty, or if nobody has joined since it
// was read and found to have room. (Who leaves meanwhile only makes more.)
func (b *Backend) joinSemaphore(ctx context.Context, c *driver.Claim, l *lease) (*standing, bool, error) {
	line := b.line(c.Key)
	room := line.permits().none()
	for range mostTries {
		s, put := b.place(c, l)
		answer, err := s.putInto(ctx, put, func() ([]clientv3.Cmp, []clientv3.Op, []clientv3.Op) {
			base := []clientv3.Cmp{absent(s.name), absent(line.rest(c.ID)), line.shared().none()}
			if c.NoWait {
				base = append(base, room)
			}
			return base,
				[]clientv3.Op{line.permits().all(), clientv3.OpGet(line.mark()), put},
				[]clientv3.Op{line.claims().all(), clientv3.OpGet(line.mark()), clientv3.OpGet(line.rest(c.ID)), clientv3.OpGet(s.name)}
		})
		if err != nil || answer == nil {
			return s, err == nil, err
		}
		s.mark = one(answer, 1)
		all := answer.Responses[0].GetResponseRange().Kvs
		if answer.Succeeded {
			s.rev = s.at
			return s, true, s.weigh(c, all)
		}
		s.rest = one(answer, 2)
		s.own = ownIn(answer, 3, c.ID)
		s.head = first(all)
		if err := s.obstacle(c, one(answer, 3)); err != nil {
			return s, false, err
		}
		if s.own != nil || s.rest != nil || s.foreign(c) {
			return s, false, s.refusal(c, len(all))
		}
		s.rev = s.at + 1 // it would stand behind all of these
		if err := s.weigh(c, all); err != nil {
			return nil, false, err
		}
		if !s.granted {
			return s, false, s.refusal(c, len(all))
		}
		room = line.permits().until(s.at)
	}
	return nil, false, errRaced
}

// repeated answers an Enter whose claim is in line already. Its lease starts again,
// for the answer to the Enter before may have been lost, and its caller counts from
// this one.
func (b *Backend) repeated(ctx context.Context, c driver.Claim, s *standing) (driver.Ticket, error) {
	ttl, err := b.prolong(ctx, s.line, &c, s.own)
	if err != nil {
		return driver.Ticket{}, err
	}
	s, err = b.stand(ctx, &c, s.own.CreateRevision)
	if err != nil {
		return driver.Ticket{}, err
	}
	return b.admit(&c, s, ttl, ttl) // the keep-alive was sent after this Enter
}

// admit answers an Enter.
func (b *Backend) admit(c *driver.Claim, s *standing, ttl, left time.Duration) (driver.Ticket, error) {
	t, err := s.ticket(c)
	if err != nil {
		return driver.Ticket{}, err
	}
	t.TTL, t.Left = ttl, left
	if !t.Granted {
		b.keep(place{t.Key, t.ID}, s.vigil())
	}
	return t, nil
}
