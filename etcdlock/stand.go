package etcdlock

import (
	"context"
	"errors"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock/driver"
)

// exactAhead is how many claims before one of a mutex or read-write lock are
// counted. Of a longer line it is said how long it is.
const exactAhead = 128

// standing is where a claim stands, as of one revision.
type standing struct {
	backend *Backend
	line    lineKeys
	name    string // the claim's key, as far as it is known
	at      int64  // the revision at which this was so
	rev     int64  // the revision that created the claim

	own, rest *keyValue // nil if absent, or if nobody asked
	under     *keyValue // what is under name: own, or a stray
	head      *keyValue // the first claim of the line
	mark      *keyValue
	granted   bool
	mixed     bool
	ahead     int

	blocker string           // of a reader or writer that waits: whose leaving may let it in
	before  map[string]int64 // of a claim on a semaphore that waits: the weights ahead
	excess  int64            // by how much these must shrink
}

// one is the key that a read for one key has found, or nil.
func one(answer *clientv3.TxnResponse, op int) *keyValue {
	return first(answer.Responses[op].GetResponseRange().Kvs)
}

// first is the oldest of kvs, or nil.
func first(kvs []*keyValue) *keyValue {
	if len(kvs) == 0 {
		return nil
	}
	return slices.MinFunc(kvs, byAge)
}

func byAge(a, b *keyValue) int {
	return int(min(max(a.CreateRevision-b.CreateRevision, -1), 1))
}

// foreign reports whether the line is of another kind than c.
func (s *standing) foreign(c *driver.Claim) bool {
	if s.head == nil {
		return false
	}
	_, class, _, ok := s.backend.split(string(s.head.Key))
	return ok && (class == classPermit) != (c.Capacity < driver.RW)
}

// refusal says why c, with n claims in line, was not put. It is nil if c is in line
// already.
func (s *standing) refusal(c *driver.Claim, n int) error {
	switch {
	case s.rest != nil:
		return goneFor(s.rest)
	case s.own != nil:
		return nil
	case s.foreign(c):
		return driver.ErrKind
	case !c.NoWait || s.head == nil:
		return errors.New("the server refused for no reason")
	}
	busy, err := s.busy(n)
	if err != nil {
		return err
	}
	return busy
}

// busy describes the first claim of the line to one with that many ahead.
func (s *standing) busy(ahead int) (*driver.BusyError, error) {
	var r record
	if err := decode(s.head, &r); err != nil {
		return nil, err
	}
	return &driver.BusyError{
		Owner: r.Owner, Note: r.Note, Token: tokenOf(s.head.CreateRevision),
		Since: time.UnixMilli(r.Since), Left: r.left(), Ahead: ahead,
	}, nil
}

// weigh finds where c, a claim on a semaphore that joined at s.rev, stands among
// all.
func (s *standing) weigh(c *driver.Claim, all []*keyValue) error {
	s.before, s.excess = make(map[string]int64), c.Weight-c.Capacity
	s.mixed, s.ahead, s.head = false, 0, first(all)
	for _, kv := range all {
		var r record
		if err := decode(kv, &r); err != nil {
			return err
		}
		s.mixed = s.mixed || r.Capacity != c.Capacity
		if kv.CreateRevision < s.rev {
			s.before[string(kv.Key)] = r.Weight
			s.excess += r.Weight
			s.ahead++
		}
	}
	s.granted = s.excess <= 0
	return nil
}

// ticket is what to tell the caller. Its lease is not set.
func (s *standing) ticket(c *driver.Claim) (driver.Ticket, error) {
	t := driver.Ticket{Claim: *c, Token: tokenOf(s.rev), Granted: s.granted, Mixed: s.mixed}
	if !t.Granted {
		t.Ahead = s.ahead
		if s.head == nil {
			return t, nil
		}
		var err error
		t.Head, err = s.busy(s.ahead)
		return t, err
	}
	if s.mark != nil {
		var m markRecord
		if err := decode(s.mark, &m); err != nil {
			return t, err
		}
		t.Mark = driver.Mark(m.Mark)
	}
	return t, nil
}

// looks are the reads that stand makes of the line of c, for a claim of this name and of
// the revision rev, as far as they are known.
func (l lineKeys) looks(c *driver.Claim, name string, rev int64) []clientv3.Op {
	ops := []clientv3.Op{l.own(name, rev), clientv3.OpGet(l.rest(c.ID)), clientv3.OpGet(l.mark())}
	if c.Capacity < driver.RW {
		return append(ops, l.permits().all())
	}
	older := clientv3.WithMaxCreateRev(max(rev, 2) - 1)
	blockers := l.claims()
	if classOf(c) == classReader {
		blockers = l.writers()
	}
	return append(ops,
		l.claims().all(clientv3.WithFirstCreate()...),
		l.claims().all(older, clientv3.WithLimit(exactAhead), clientv3.WithKeysOnly(), clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend)),
		blockers.all(append(clientv3.WithLastCreate(), older, clientv3.WithKeysOnly())...),
	)
}

// seen reads the answers to looks.
func (s *standing) seen(c *driver.Claim, answer *clientv3.TxnResponse) error {
	s.at = answer.Header.Revision
	s.own, s.rest, s.mark = ownIn(answer, 0, c.ID), one(answer, 1), one(answer, 2)
	if s.own != nil {
		s.name, s.under = string(s.own.Key), s.own
	} else if s.name != "" {
		s.under = one(answer, 0)
	}
	if s.own == nil || s.rest != nil {
		return goneFor(s.rest)
	}
	if c.Capacity < driver.RW {
		s.rev = s.own.CreateRevision
		return s.weigh(c, answer.Responses[3].GetResponseRange().Kvs)
	}
	s.head = one(answer, 3)
	older := answer.Responses[4].GetResponseRange()
	s.ahead = len(older.Kvs)
	if older.More {
		s.ahead = int(answer.Responses[3].GetResponseRange().Count) - 1
	}
	if last := one(answer, 5); last != nil {
		s.blocker = string(last.Key)
	}
	s.granted = s.blocker == ""
	return nil
}

// stand reads where c stands. rev is the revision of its claim as far as that is
// known, and 0 if it is not. It answers ErrGone if c is not in line.
func (b *Backend) stand(ctx context.Context, c *driver.Claim, rev int64) (*standing, error) {
	for range mostTries {
		s := &standing{backend: b, line: b.line(c.Key), rev: rev}
		s.name = b.slots.name(place{c.Key, c.ID})
		answer, err := b.etcd.Txn(ctx).Then(s.line.looks(c, s.name, rev)...).Commit()
		if err != nil {
			return nil, err
		}
		if err := s.seen(c, answer); err != nil {
			return s, err
		}
		if s.own.CreateRevision == rev || c.Capacity < driver.RW {
			return s, nil
		}
		rev = s.own.CreateRevision // what was read is of another claim
	}
	return nil, errRaced
}
