package lab

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/internal/faultproxy"
	"github.com/fencelock/fencelock/internal/history"
	"github.com/fencelock/fencelock/redislock"
)

const (
	// shortLease is that of a holder whose lease ends while somebody watches. It ends by
	// the server's clock, for which there is no PEXPIRE.
	shortLease = 2 * time.Second
	// watchedLease is one that must be renewed in time while the machine is busy.
	watchedLease = 3 * time.Second
)

// user is one process that locks with fencelock.
type user struct {
	actor
	locker *fencelock.Client
	wire   *faultproxy.Proxy // between the process and its store
	left   chan error        // what its requests to leave were answered
	ttl    time.Duration
	lease  *fencelock.Lease

	giveUp  context.CancelFunc // ends the waiting
	waiting chan outcome
}

// outcome is how a call ended that was made behind the schedule's back.
type outcome struct {
	lease *fencelock.Lease
	err   error
	at    time.Duration
}

// users connects three processes to one server.
func (s *stage) users() (a, b, c *user) {
	n := s.redis("")
	return s.user(n, "A"), s.user(n, "B"), s.user(n, "C")
}

func (s *stage) user(n *node, name string) *user { return s.userAs(n, name, name) }

// userAs connects a process to Redis, with a client, a connection and a backend of its own.
// It is shown to others as owner.
func (s *stage) userAs(n *node, name, owner string) *user {
	rdb, wire := s.dial(n)
	u := s.userOn(redislock.New(rdb, nil), wire, name, owner)
	s.holds = func() []Text { return s.lines(n) }
	return u
}

// dial returns a client that reaches a server through a wire.
func (s *stage) dial(n *node) (*redis.Client, *faultproxy.Proxy) {
	wire, err := faultproxy.Listen(n.server.Addr(), faultproxy.Redis)
	s.check(err)
	o := *n.rdb.Options()
	o.Addr, o.Dialer, o.DialerRetries = wire.Addr(), nil, 1
	rdb := redis.NewClient(&o)
	s.closers = append(s.closers, func() error {
		wire.Close()
		return rdb.Close()
	})
	return rdb, wire
}

// userOn connects a process to any store.
func (s *stage) userOn(b driver.Backend, wire *faultproxy.Proxy, name, owner string) *user {
	u := &user{actor: actor{s, name}, wire: wire, left: make(chan error, 64), ttl: lease}
	// One goroutine each: nobody to hand on to.
	locks, err := fencelock.New(leaves{b, u.left}, &fencelock.Options{Owner: owner, TTL: lease, HandOff: 1})
	if err != nil {
		panic(err) // a mistake of the lab
	}
	u.locker = locks
	s.closers = append(s.closers, func() error {
		if wire != nil {
			wire.Resume()
		}
		_ = u.locker.Close() // a lease that is lost may be reported again
		return nil
	})
	return u
}

// leaves notes what the store answers to each Leave.
type leaves struct {
	driver.Backend
	answers chan error
}

func (l leaves) Leave(ctx context.Context, t driver.Ticket, e driver.Exit) error {
	err := l.Backend.Leave(ctx, t, e)
	if err == nil || driver.Gone(err) {
		select {
		case l.answers <- err:
		default:
		}
	}
	return err
}

// isCutOff holds back what the process sends until its network is back.
func (u *user) isCutOff() { u.wire.Hold(faultproxy.ToServer) }

// missesMessages loses what the store publishes to the process.
func (u *user) missesMessages() {
	u.wire.Handle(func(r *faultproxy.Request) faultproxy.Action {
		if strings.EqualFold(r.Args()[0], "subscribe") {
			return faultproxy.DiscardAnswer
		}
		return faultproxy.Pass
	})
}

// locks waits for the lock.
func (u *user) locks() { u.locksAs("Lock") }

// locksAs waits for the lock with more options, and is shown as call.
func (u *user) locksAs(call string, more ...fencelock.Option) {
	u.event(history.Enter)
	l, err := u.locker.Lock(u.ctx, u.key(), append(more, fencelock.TTL(u.ttl))...)
	u.check(err)
	u.granted(call, l, u.now())
}

// tries tries to lock, and wants to succeed.
func (u *user) tries() {
	u.event(history.Enter)
	l, err := u.locker.TryLock(u.ctx, u.key())
	u.check(err)
	u.granted("TryLock", l, u.now())
}

// refused tries to lock, and wants to hear who holds the lock.
func (u *user) refused() {
	u.event(history.Enter)
	_, err := u.locker.TryLock(u.ctx, u.key())
	var held *fencelock.HeldError
	if !errors.As(err, &held) {
		u.want(false, "%s got the lock, and another holds it: %v", u.name, err)
	}
	u.event(history.Refused)
	u.record("TryLock → held by " + held.Owner)
}

func (u *user) granted(call string, l *fencelock.Lease, at time.Duration) {
	u.lease = l
	u.event(history.Believe, token(int64(l.Token())), func(e *history.Event) { e.At = at })
	u.record(fmt.Sprintf("%s → %d", call, l.Token()))
}

// releases gives the lock back, and wants it to be still held.
func (u *user) releases() {
	u.event(history.Release)
	u.check(u.lease.Release(u.ctx))
	u.event(history.Left)
	u.record("Release → ok")
}

// isTold waits until the holder is told that its lease is over.
func (u *user) isTold() {
	select {
	case <-u.lease.Context().Done():
	case <-u.ctx.Done():
		u.check(u.ctx.Err())
	}
	u.event(history.Loss)
	cause := context.Cause(u.lease.Context())
	u.want(errors.Is(cause, fencelock.ErrExpired), "%s was told %v", u.name, cause)
	u.record("Context() → ErrExpired")
}

// looks asks a lease that has ended for its state.
func (u *user) looks() {
	err := u.lease.Err()
	u.want(errors.Is(err, fencelock.ErrExpired), "Err of a lease that has ended is %v", err)
	u.event(history.Loss)
	u.record("Err() → ErrExpired")
}

// outlives waits until the lease would have ended, had nobody renewed it.
func (u *user) outlives() {
	select {
	case <-time.After(watchedLease + watchedLease/10):
	case <-u.ctx.Done():
	}
	u.check(u.lease.Err())
}

// waits joins the line, and waits behind the schedule's back.
func (u *user) waits() {
	before := len(u.look())
	u.event(history.Enter)
	ctx, cancel := context.WithCancel(u.ctx)
	u.giveUp, u.waiting = cancel, make(chan outcome, 1)
	u.closers = append(u.closers, func() error { cancel(); return nil })
	key := u.key()
	go func() {
		l, err := u.locker.Lock(ctx, key, fencelock.TTL(u.ttl))
		u.waiting <- outcome{l, err, u.now()}
	}()
	u.until("the waiter is in line", func() bool { return len(u.look()) > before })
}

// gets is the end of the waiting.
func (u *user) gets() {
	o := <-u.waiting
	u.check(o.err)
	u.granted("Lock", o.lease, o.at)
}

// writes sends a write with the token of the lease, and wants it to be accepted.
func (u *user) writes() {
	t := u.lease.Token()
	u.check(u.gate.Do(u.ctx, t, func() error {
		u.event(history.Write, token(int64(t)))
		return nil
	}))
	u.record("write(" + u.name + ", token) → ok")
}

// writesLate sends a write with the token of the lease, and wants it to be refused.
func (u *user) writesLate() {
	t := u.lease.Token()
	err := u.gate.Do(u.ctx, t, func() error { return nil })
	u.want(errors.Is(err, fence.ErrStale), "the late write of %s was answered %v", u.name, err)
	u.event(history.Denied, token(int64(t)))
	u.record("write(" + u.name + ", token) → ErrStale")
}
