package fencelock

import (
	"crypto/rand"
	"errors"
	"sync/atomic"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/fence"
)

// state of a claim. A claim that ended never comes back: the next one has
// another ID.
type state uint8

const (
	fresh   state = iota // the store has not answered an Enter yet
	waiting              // in line
	held                 // granted
	ended                // over: lost, left, or never there
	leaving              // over, and the store is still to be told
)

// never is a time that does not come.
const never = int64(1)<<62 - 1

// claim is one place in the store's line. Everything but deadline is guarded by
// the Client's mutex. A Client may have a hundred thousand of them, so what most
// never have is kept apart.
type claim struct {
	key, id  string
	token    int64         // the first of its span; 0 until the store has answered
	ttl      time.Duration // as the store grants it
	deadline atomic.Int64  // when the lease ends, at the latest, for all that this process knows

	sent    int64 // when the last answered Enter or Renew was sent
	since   int64 // when it was first granted to somebody here, or the store last said that it is alone
	over    int64 // when the server's lease has surely ended
	endAt   int64 // MaxHold
	retryAt int64 // next renewal or leave
	next    int64 // when the Client's clock is to look at it

	gate   *gate
	grant  *grant // who holds it now
	seldom *seldom

	capacity, weight, span int32
	used                   int32 // tokens of its span given so far
	base                   int32 // what used was at since
	tries                  int32 // failed renewals or leaves in a row
	index                  int32 // in the Client's schedule, -1 if not there

	state   state
	granted bool // by the store
	queued  bool // others were in line before it
	crowded bool // others are in line behind it, or the store does not say
	noWait  bool
	unsure  bool // an Enter of this ID may still arrive: Leave must lay it to rest
	fixed   bool // not renewed once it is held
	whole   bool // a FixedLease that waited has been renewed to its full length
	atRisk  bool // said so
	busy    bool // a renewal is on its way
	exiting bool // a leave is on its way
	broken  bool // an operator ended it
}

// seldom is what a claim has that does not just get its lock, hold it and leave.
type seldom struct {
	note   string
	mark   driver.Mark       // that the last one left behind
	head   *driver.BusyError // who was first in line when last heard
	ahead  int
	lost   error         // why it ended, when it ended by itself
	wake   func()        // interrupts the Await of a claim that ended
	idle   chan struct{} // closed when the renewal on its way has come back, if somebody waits for that
	leave  driver.Mark   // left behind when the last lease is released
	exit   driver.Exit   // how it leaves, as of exitAt
	exitAt int64

	minHold time.Duration // from its grant on
}

// nothing stands in for the seldom of a claim that has none. It is not written to.
var nothing seldom

// has is for reading.
func (cl *claim) has() *seldom {
	if cl.seldom == nil {
		return &nothing
	}
	return cl.seldom
}

// gets is for writing.
func (cl *claim) gets() *seldom {
	if cl.seldom == nil {
		cl.seldom = &seldom{}
	}
	return cl.seldom
}

// newClaim makes the claim of r. c.mu is held.
func (c *Client) newClaim(r *request) *claim {
	cl := &claim{
		key: r.key, id: c.ids.draw(), capacity: int32(r.capacity), weight: int32(r.weight),
		ttl: r.lease, span: int32(r.span), fixed: r.fixed, index: -1, next: never, endAt: never,
	}
	if r.note != "" {
		cl.gets().note = r.note
	}
	return cl
}

// asks is cl as the store is asked for it.
func (c *Client) asks(cl *claim) driver.Claim {
	return driver.Claim{
		Key: cl.key, ID: cl.id, Owner: c.o.Owner, Note: cl.has().note,
		Capacity: int64(cl.capacity), Weight: int64(cl.weight), TTL: cl.ttl, NoWait: cl.noWait, Span: int64(cl.span),
	}
}

// ticket is what the store has answered to cl.
func (c *Client) ticket(cl *claim) driver.Ticket {
	has := cl.has()
	return driver.Ticket{
		Claim: c.asks(cl), Token: cl.token, Granted: cl.granted,
		Ahead: has.ahead, Mark: has.mark, Head: has.head,
	}
}

// ids draws the IDs of claims: 26 characters of five random bits each, as
// rand.Text has them, from random bytes that are fetched for many at once.
type ids struct {
	random [32 * 26]byte
	used   int // of random; 0 before the first draw
}

func (d *ids) draw() string {
	if d.used == 0 || d.used == len(d.random) {
		rand.Read(d.random[:]) // never fails
		d.used = 0
	}
	id := d.random[d.used : d.used+26]
	d.used += 26
	for i, b := range id {
		id[i] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"[b%32]
	}
	return string(id)
}

// believed returns how long a lease of length d is believed, counted from the
// sending of the call that started it: a hundredth and two milliseconds less, for
// clocks that do not run at the same rate and threads that are put aside.
func believed(d time.Duration) int64 { return int64(d - d/100 - 2*time.Millisecond) }

// covers reports whether token is one of cl's.
func (cl *claim) covers(token fence.Token) bool {
	return cl.token != 0 && int64(token) >= cl.token && int64(token)-cl.token < max(int64(cl.span), 1)
}

// answered notes a lease that was confirmed by an answer to a call sent at sent.
// It never moves the deadline back. It reports false if the answer came after
// the lease it speaks of had ended.
func (cl *claim) answered(sent, now int64, left time.Duration) bool {
	deadline := sent + believed(left)
	if now >= deadline {
		return false
	}
	if deadline > cl.deadline.Load() {
		cl.deadline.Store(deadline)
		cl.sent = sent
		cl.retryAt = sent + int64(left)/3
	}
	cl.over = max(cl.over, now+int64(left))
	cl.tries = 0
	return true
}

// lossOf describes how cl ended, for the holder of token.
func (cl *claim) lossOf(kind error, token fence.Token, detail string) error {
	e := &lossError{kind: kind, key: cl.key, token: token, detail: detail}
	if kind == ErrExpired && cl.fixed {
		e.also = ErrMaxHold
	}
	return e
}

// goneDetail is the reason that came with a driver's ErrGone.
func goneDetail(err error) (reason string, broken bool) {
	var g driver.ErrGone
	if errors.As(err, &g) {
		return g.Reason, g.Broken
	}
	return "", false
}

// schedule is a heap of claims by the time they are next to be looked at.
type schedule []*claim

func (s schedule) less(i, j int) bool { return s[i].next < s[j].next }

func (s schedule) swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].index, s[j].index = int32(i), int32(j)
}

func (s schedule) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !s.less(i, parent) {
			return
		}
		s.swap(i, parent)
		i = parent
	}
}

func (s schedule) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(s) {
			return
		}
		if child+1 < len(s) && s.less(child+1, child) {
			child++
		}
		if !s.less(child, i) {
			return
		}
		s.swap(i, child)
		i = child
	}
}

// put adds cl, or moves it, to be looked at at time at.
func (s *schedule) put(cl *claim, at int64) {
	cl.next = at
	if cl.index < 0 {
		cl.index = int32(len(*s))
		*s = append(*s, cl)
		s.up(int(cl.index))
		return
	}
	s.up(int(cl.index))
	s.down(int(cl.index))
}

// drop takes cl out; one that is not in is left alone.
func (s *schedule) drop(cl *claim) {
	i := int(cl.index)
	if i < 0 {
		return
	}
	last := len(*s) - 1
	if i != last {
		s.swap(i, last)
	}
	(*s)[last] = nil
	*s = (*s)[:last]
	cl.index = -1
	if i != last {
		s.up(i)
		s.down(i)
	}
}
