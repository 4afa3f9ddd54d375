package every

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/internal/faultproxy"
)

// One way of a connection is dead, and neither side sees its end. The holder is told by its
// deadline, the next is granted the lock after that, and the client works again when it heals.
//
//verify:fault The network | half-open connections, one direction cut
func TestOneWayIsCut(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store) {
		for _, d := range []direction{toServer, toClient} {
			t.Run(string(d), func(t *testing.T) {
				t.Parallel()
				key, other := newKey(t), newKey(t)
				a, addr := s.far(t)
				b := s.near(t)
				lease := lock(t, a, key)
				// Several connections of the client are in use.
				aside := lock(t, a, other)
				next := lockBehind(t, b, key)
				if s.servers == 1 { // a quorum has no line
					next.inLine(t, b)
				}
				mend := sync.OnceFunc(s.cut(t, addr, d))
				defer mend()
				ended(t, lease)
				// A call that begins now ends with its context, and says that nobody answers.
				ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
				defer cancel()
				if _, err := a.Lock(ctx, newKey(t)); !errors.Is(err, fencelock.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("a Lock whose answer cannot arrive was told %v", err)
				}
				lease2 := next.granted(t, "the next")
				if early := lease.Deadline().Sub(next.at); early > 0 {
					t.Errorf("the next was granted %v before the holder's lease had ended", early)
				}
				steps.Rises(t, lease.Token(), lease2.Token())
				mend()
				third, err := a.Lock(steps.Soon(t), newKey(t))
				if err != nil {
					t.Fatalf("when the way was mended the client was told %v", err)
				}
				release(t, "the client that was cut off", third)
				steps.Is(t, "Release of the lost lock", lease.Release(t.Context()), fencelock.ErrLost)
				if err := aside.Release(t.Context()); err != nil && !errors.Is(err, fencelock.ErrLost) {
					t.Errorf("Release of another lock answered %v", err)
				}
				steps.Well(t, "Renew of the lock of the next", lease2.Renew(t.Context()))
				release(t, "the next", lease2)
				// The aside lock is free as well.
				last, err := b.Lock(steps.Soon(t), other)
				if err != nil {
					t.Fatalf("another lock of the client that was cut off stays taken: %v", err)
				}
				release(t, "the last", last)
			})
		}
	})
}

// A call that gets no answer ends with its context and says so, though its connection has the
// same deadline. A connection that ends because of its own silence is another matter.
func TestCallThatRunsOutOfTimeSaysSo(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store) {
		addr := way()
		b := s.open(t, s.addrs(addr))
		t.Cleanup(func() { b.Close() })
		claim := func(id int) driver.Claim {
			return driver.Claim{Key: fmt.Sprint(newKey(t), id), ID: fmt.Sprintf("%032x", id), Capacity: driver.RW, Weight: driver.RW, TTL: ttl, Span: 1}
		}
		held, err := b.Enter(t.Context(), claim(1))
		steps.Must(t, err)
		defer s.cut(t, addr, toClient)()
		calls := map[string]func(context.Context) error{
			"Enter": func(ctx context.Context) error { _, err := b.Enter(ctx, claim(2)); return err },
			"Renew": func(ctx context.Context) error { return b.Renew(ctx, []driver.Ticket{held})[0] },
			"Leave": func(ctx context.Context) error { return b.Leave(ctx, held, driver.Exit{}) },
			"Break": func(ctx context.Context) error {
				return b.Break(ctx, held.Key, held.Token, driver.Break{Reason: "test"})
			},
			"Lines": func(ctx context.Context) (err error) {
				for _, err = range b.Lines(ctx, held.Key) {
				}
				return err
			},
		}
		out := 0
		for round := range 25 {
			for call, f := range calls {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+round%5)*time.Millisecond)
				err := f(ctx)
				var timeout net.Error
				ran := errors.As(err, &timeout) && timeout.Timeout()
				switch {
				case err == nil, ran && !errors.Is(err, context.DeadlineExceeded):
					t.Errorf("%s answered %v", call, err)
				case ran:
					out++
				}
				cancel()
			}
		}
		if all := 25 * len(calls); out < all/2 {
			t.Errorf("%d of %d calls ran out of time: this tests nothing", out, all)
		}
	})
}

// watch sees whether two hold a key at once.
type watch struct {
	pause time.Duration // between two grants to one of them

	mu     sync.Mutex
	inside map[*fencelock.Lease]bool
	last   fence.Token
	grants map[string]int
}

func (w *watch) enter(t testing.TB, who string, lease *fencelock.Lease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for other := range w.inside {
		if other.Err() == nil && lease.Err() == nil {
			t.Errorf("%d is held beside %d", lease.Token(), other.Token())
		}
	}
	steps.Rises(t, w.last, lease.Token())
	w.last = max(w.last, lease.Token())
	w.inside[lease] = true
	w.grants[who]++
}

func (w *watch) leave(lease *fencelock.Lease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.inside, lease)
}

func (w *watch) count(who string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.grants[who]
}

// served waits until somebody is granted the lock so many times more.
func (w *watch) served(t testing.TB, when, who string, more int) {
	t.Helper()
	before := w.count(who)
	until(t, fmt.Sprintf("%s, who is %s is served %d times", when, who, more), func() error {
		if n := w.count(who) - before; n < more {
			return fmt.Errorf("it was %d times", n)
		}
		return nil
	})
}

// compete locks the key, holds it for a time, and releases it, until the test says so.
func (w *watch) compete(t testing.TB, who string, c *fencelock.Client, key string, hold time.Duration, stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*ttl)
		lease, err := c.Lock(ctx, key)
		if err != nil {
			cancel()
			if errors.Is(err, fencelock.ErrNotAcquired) || errors.Is(err, fencelock.ErrUnavailable) {
				continue
			}
			t.Errorf("%s was told %v", who, err)
			return
		}
		w.enter(t, who, lease)
		select {
		case <-lease.Context().Done():
		case <-time.After(hold):
		case <-stop:
		}
		w.leave(lease)
		cancel()
		if err := lease.Release(context.Background()); err != nil && !errors.Is(err, fencelock.ErrLost) && !errors.Is(err, fencelock.ErrUnavailable) {
			t.Errorf("Release by %s: %v", who, err)
		}
		select {
		case <-time.After(w.pause):
		case <-stop:
		}
	}
}

// rival takes a lock, holds it for a time and releases it, again and again.
type rival struct {
	name string
	c    *fencelock.Client
	hold time.Duration
}

// rivals has some compete for a key until end is called, or the test ends.
func (s *store) rivals(t testing.TB, key string, all ...rival) (w *watch, end func()) {
	w = &watch{pause: s.pause, inside: map[*fencelock.Lease]bool{}, grants: map[string]int{}}
	stop := make(chan struct{})
	var workers sync.WaitGroup
	for _, r := range all {
		workers.Go(func() { w.compete(t, r.name, r.c, key, r.hold, stop) })
	}
	end = sync.OnceFunc(func() { close(stop); workers.Wait() })
	t.Cleanup(end)
	return w, end
}

// A holder that lost the store may have sent its last write just before the Deadline of its lease.
// With a LockDelay nobody is granted the key before that delay has passed.
func TestLockDelayHoldsTheNextOff(t *testing.T) {
	t.Parallel()
	const delay = ttl / 2 // a session of these tests has ttl, for lease and delay
	each(t, func(t *testing.T, s *store) {
		key := newKey(t)
		a, addr := s.far(t)
		b := s.near(t)
		lease := lock(t, a, key, fencelock.TTL(ttl/2), fencelock.LockDelay(delay))
		next := lockBehind(t, b, key)
		for _, d := range []direction{toServer, toClient} {
			defer s.cut(t, addr, d)()
		}
		<-lease.Context().Done()
		ended := lease.Deadline() // the machine may have told the holder late
		next.granted(t, "the next")
		if apart := next.at.Sub(ended); apart < delay {
			t.Errorf("the next was granted %v after the holder's lease; want at least %v", apart, delay)
		}
		release(t, "the next", next.lease)
	})
}

// A link goes down and up each half of a lease. Clients behind it may lose locks. No two hold one,
// and clients with a good link are served all the time.
//
//verify:fault The network | a link that fails and returns every half lease
func TestLinkThatFlaps(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store) {
		a, addr := s.far(t)
		w, _ := s.rivals(t, newKey(t), rival{"far", a, ttl}, rival{"near", s.near(t), ttl / 20})
		w.served(t, "with a link that is up", "far", 1)
		w.served(t, "with a link that is up", "near", 1)
		// Who is behind the link holds the lock for a lease, and one more passes when its
		// release does not arrive.
		before, began := w.count("near"), time.Now()
		for round := 0; round < 2 || w.count("near") == before && time.Since(began) < patience; round++ {
			mends := []func(){s.cut(t, addr, toServer), s.cut(t, addr, toClient)}
			<-time.After(ttl / 2) // real time: the link is down, and as long up
			for _, mend := range mends {
				mend()
			}
			<-time.After(ttl / 2) // real time: as above
		}
		if w.count("near") == before {
			t.Errorf("who has a good link was not served in %v", time.Since(began))
		}
		w.served(t, "with a link that stays up", "far", 2)
		w.served(t, "with a link that stays up", "near", 2)
	})
}

// Answers take a twentieth of a lease, and locks work. Then they take four fifths, more than the
// third that a call has: no slow client gets a lock, and quick ones are served.
//
//verify:fault The network | answers take four fifths of a lease
func TestAnswersTakeMostOfALease(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store) {
		var addrs []string
		var proxies []*faultproxy.Proxy
		for _, one := range s.addrs("127.0.0.1") {
			p := faultproxy.Start(t, one, faultproxy.Framer{})
			proxies, addrs = append(proxies, p), append(addrs, p.Addr())
		}
		a := s.client(t, addrs)
		first := lock(t, a, newKey(t))
		_ = first.Release(t.Context())
		slow := func(d time.Duration) {
			for _, p := range proxies {
				p.Delay(d)
			}
		}
		slow(ttl / 20)
		w, end := s.rivals(t, newKey(t), rival{"slow", a, ttl / 2}, rival{"quick", s.near(t), ttl / 20})
		w.served(t, "with answers that take a twentieth of a lease", "slow", 1)
		w.served(t, "with answers that take a twentieth of a lease", "quick", 1)
		slow(ttl * 4 / 5)
		<-time.After(ttl) // real time: who held the lock when it became so slow holds it no longer
		w.served(t, "with answers that take four fifths of a lease", "quick", 1)
		slow(0)
		w.served(t, "without a delay", "slow", 1)
		end()
	})
}
