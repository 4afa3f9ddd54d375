package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/internal/history"
	"github.com/fencelock/fencelock/redislock"
	"github.com/redis/go-redis/v9"
)

// shortLease is that of a holder whose lease ends while somebody watches. It ends by
// the server's clock, for which there is no PEXPIRE.
const shortLease = 400 * time.Millisecond

// user is one process that locks with fencelock.
type user struct {
	*fencelock.Client
	s             *stage
	name          string
	wire          *wire
	subscriptions *subscriptions
	lease         *fencelock.Lease

	giveUp  context.CancelFunc // ends the waiting
	waiting chan outcome
}

// outcome is how a call ended that was made behind the schedule's back.
type outcome struct {
	lease *fencelock.Lease
	err   error
	at    time.Duration
}

// user connects a process to Redis, with a client, a connection and a backend of its
// own. It is shown to others under its name, or the owner that is given.
func (s *stage) user(n *node, name string, owner ...string) *user {
	e := &subscriptions{}
	o := *n.rdb.Options()
	o.Dialer = e.dial
	rdb := redis.NewClient(&o)
	u := s.userOn(redislock.New(rdb, nil), name, owner...)
	u.subscriptions = e
	s.closers = slices.Insert(s.closers, len(s.closers)-1, rdb.Close) // after the user
	s.showLine(redislock.New(n.rdb, nil))
	return u
}

// userOn connects a process to any store.
func (s *stage) userOn(b driver.Backend, name string, owner ...string) *user {
	w := &wire{Backend: b, left: make(chan error, 64)}
	u := &user{s: s, name: name, wire: w}
	// One goroutine each: nobody to hand on to.
	u.Client = fencelock.New(w, &fencelock.Options{Owner: append(owner, name)[0], TTL: lease, HandOff: 1})
	s.closers = append(s.closers, u.close)
	return u
}

func (u *user) close() error {
	u.wire.mend()
	_ = u.Close() // a lease that is lost may be reported again
	return nil
}

// lock waits for the lock.
func (u *user) lock(o ...fencelock.Option) {
	u.s.event(history.Enter, u.name)
	l, err := u.Lock(u.s.ctx, u.s.key, o...)
	u.s.check(err)
	u.granted("Lock", l)
}

// try tries to lock, and wants the answer that the text tells.
func (u *user) try(want bool) {
	u.s.event(history.Enter, u.name)
	l, err := u.TryLock(u.s.ctx, u.s.key)
	u.tried("TryLock", l, err, want)
}

func (u *user) tried(call string, l *fencelock.Lease, err error, want bool) {
	var held *fencelock.HeldError
	switch {
	case err == nil && want:
		u.granted(call, l)
	case err == nil:
		u.s.want(false, "%s got the lock, and another holds it", u.name)
	case errors.As(err, &held) && !want:
		u.s.event(history.Refused, u.name)
		u.s.record(call + " → held by " + held.Owner)
	default:
		u.s.check(err)
	}
}

func (u *user) granted(call string, l *fencelock.Lease) {
	u.lease = l
	u.s.event(history.Believe, u.name, token(int64(l.Token())))
	if call == "TryRLock" { // tokens of readers order nothing
		u.s.record(call + " → ok")
		return
	}
	u.s.record(fmt.Sprintf("%s → %d", call, l.Token()))
}

// release gives the lock back, and wants it to be still held.
func (u *user) release() {
	u.s.event(history.Release, u.name)
	err := u.lease.Release(u.s.ctx)
	u.s.check(err)
	u.s.event(history.Left, u.name)
	u.s.record("Release → ok")
}

// lost waits until the holder is told that its lease is over.
func (u *user) lost() {
	select {
	case <-u.lease.Context().Done():
	case <-u.s.ctx.Done():
		u.s.check(u.s.ctx.Err())
	}
	u.s.event(history.Loss, u.name)
	cause := context.Cause(u.lease.Context())
	u.s.want(errors.Is(cause, fencelock.ErrExpired), "%s was told %v", u.name, cause)
	u.s.record("Context() → ErrExpired")
}

// releaseLost releases what is lost already, and wants to hear so.
func (u *user) releaseLost() {
	err := u.lease.Release(u.s.ctx)
	u.s.want(errors.Is(err, fencelock.ErrLost), "Release of a lost lease answered %v", err)
	u.s.record("Release → ErrLost")
}

// wait joins the line, and waits behind the schedule's back.
func (u *user) wait(o ...fencelock.Option) {
	u.s.event(history.Enter, u.name)
	ctx, cancel := context.WithCancel(u.s.ctx)
	u.giveUp, u.waiting = cancel, make(chan outcome, 1)
	u.s.closers = append(u.s.closers, func() error { cancel(); return nil })
	key := u.s.key
	go func() {
		l, err := u.Lock(ctx, key, o...)
		u.waiting <- outcome{l, err, u.s.now()}
	}()
}

// gets is the end of the waiting.
func (u *user) gets() {
	o := <-u.waiting
	u.s.check(o.err)
	u.lease = o.lease
	u.s.event(history.Believe, u.name, token(int64(o.lease.Token())), func(e *history.Event) { e.At = o.at })
	u.s.record(fmt.Sprintf("Lock → %d", o.lease.Token()))
}

// inLine waits until that many hold the lock or wait for it.
func (s *stage) inLine(n *node, want int) {
	b := redislock.New(n.rdb, nil)
	s.until("the waiter is in line", func() bool {
		l, err := b.Line(s.ctx, s.key)
		s.check(err)
		return len(l.Claims) == want
	})
}

// enterAgain lets n goroutines enter again at the same time.
func (u *user) enterAgain(n int) []*fencelock.Lease {
	got := make(chan outcome, n)
	for range n {
		go func() {
			l, err := u.Lock(u.lease.Context(), u.s.key, fencelock.Reentrant())
			got <- outcome{lease: l, err: err}
		}()
	}
	var all []*fencelock.Lease
	for range n {
		o := <-got
		u.s.check(o.err)
		u.s.event(history.Believe, u.name, token(int64(o.lease.Token())), handle(fmt.Sprintf("%p", o.lease)))
		u.s.record("Lock(Reentrant) → same token")
		u.s.want(o.lease.Token() == u.lease.Token(), "the re-entry has another token")
		all = append(all, o.lease)
	}
	return all
}

// releaseHandle gives one of several leases back that share a grant.
func (u *user) releaseHandle(l *fencelock.Lease) {
	u.s.event(history.Release, u.name, handle(fmt.Sprintf("%p", l)))
	u.s.check(l.Release(u.s.ctx))
	u.s.record("Release → ok")
}

// tryRead tries to read, and wants to succeed.
func (u *user) tryRead() {
	u.s.event(history.Enter, u.name, reading)
	l, err := u.TryRLock(u.s.ctx, u.s.key)
	u.tried("TryRLock", l, err, true)
}

// wire is what lies between a process and its store. While it is cut nothing gets
// through, as when the process is stopped or its network is.
type wire struct {
	driver.Backend
	left chan error // what each Leave that got through was answered

	mu  sync.Mutex
	cut chan struct{} // closed when it is mended; nil if it is whole
}

func (w *wire) sever() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cut == nil {
		w.cut = make(chan struct{})
	}
}

func (w *wire) mend() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cut != nil {
		close(w.cut)
		w.cut = nil
	}
}

// through waits until the wire is whole.
func (w *wire) through(ctx context.Context) error {
	w.mu.Lock()
	cut := w.cut
	w.mu.Unlock()
	if cut == nil {
		return nil
	}
	select {
	case <-cut:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (w *wire) Enter(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
	if err := w.through(ctx); err != nil {
		return driver.Ticket{}, err
	}
	return w.Backend.Enter(ctx, c)
}

func (w *wire) Await(ctx context.Context, t driver.Ticket) (driver.Ticket, error) {
	if err := w.through(ctx); err != nil {
		return driver.Ticket{}, err
	}
	return w.Backend.Await(ctx, t)
}

func (w *wire) Renew(ctx context.Context, ts []driver.Ticket) []error {
	if err := w.through(ctx); err != nil {
		all := make([]error, len(ts))
		for i := range all {
			all[i] = err
		}
		return all
	}
	return w.Backend.Renew(ctx, ts)
}

func (w *wire) Leave(ctx context.Context, t driver.Ticket, e driver.Exit) error {
	if err := w.through(ctx); err != nil {
		return err
	}
	err := w.Backend.Leave(ctx, t, e)
	select {
	case w.left <- err:
	default:
	}
	return err
}

// subscriptions can lose what Redis pushes to a process, while its connections look alive.
type subscriptions struct {
	mu    sync.Mutex
	muted bool
}

func (s *subscriptions) mute() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.muted = true
}

func (s *subscriptions) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &subscription{Conn: c, all: s}, nil
}

// subscription is one connection. It loses nothing before it has subscribed.
type subscription struct {
	net.Conn
	all  *subscriptions
	push bool // guarded by all.mu
}

func (c *subscription) Write(b []byte) (int, error) {
	if subscribes(b) {
		c.all.mu.Lock()
		c.push = true
		c.all.mu.Unlock()
	}
	return c.Conn.Write(b)
}

func (c *subscription) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		c.all.mu.Lock()
		lost := c.push && c.all.muted
		c.all.mu.Unlock()
		if err != nil || !lost {
			return n, err
		}
	}
}

// subscribes recognises the request that makes a connection one for pushes.
func subscribes(b []byte) bool {
	return bytes.Contains(bytes.ToLower(b[:min(len(b), 64)]), []byte("subscribe"))
}

// showLine makes the line that b keeps what there is to see in the store.
func (s *stage) showLine(b driver.LineReader) {
	s.holds = func() []Text { return s.lines(b) }
}

func (s *stage) lines(b driver.LineReader) []Text {
	var all []Text
	for _, key := range s.keys {
		l, err := b.Line(s.ctx, key)
		s.check(err)
		for _, c := range l.Claims {
			all = append(all, standing(c))
		}
	}
	return all
}

// standing says what a claim has.
func standing(c driver.Standing) Text {
	switch {
	case !c.Granted:
		return Text{c.Owner + " waits in line", c.Owner + " 排队等待"}
	case c.Weight < c.Capacity:
		return Text{c.Owner + " reads", c.Owner + " 持有读锁"}
	}
	return Text{fmt.Sprintf("%s holds, token %d", c.Owner, c.Token), fmt.Sprintf("%s 持有, token %d", c.Owner, c.Token)}
}

// guard is the resource's own door: it lets no token in that is below the largest it
// has seen.
type guard struct {
	s    *stage
	gate fence.Gate
}

// write sends a write with the token of the lease, and wants it to be accepted, or
// refused as stale.
func (g *guard) write(u *user, want bool) {
	s := g.s
	t := u.lease.Token()
	err := g.gate.Do(s.ctx, t, func() error {
		s.event(history.Write, u.name, token(int64(t)))
		return nil
	})
	switch {
	case err == nil && want:
		s.record("write(" + u.name + ", token) → ok")
	case errors.Is(err, fence.ErrStale) && !want:
		s.event(history.Denied, u.name, token(int64(t)))
		s.record("write(" + u.name + ", token) → ErrStale")
	default:
		s.want(false, "the write of %s was answered %v", u.name, err)
	}
}
