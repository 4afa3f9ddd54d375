package bridge_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/bridge"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/faulty"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testclient"
	"github.com/fencelock/fencelock/memlock"
)

// foreignStore keeps locks as SET NX PX does.
type foreignStore struct {
	mu    sync.Mutex
	locks map[string]foreignLock
}

type foreignLock struct {
	id   string
	ends time.Time
}

// step runs f on the lock of key. f reports whether it has stored what it was given.
func (s *foreignStore) step(key string, f func(l *foreignLock, live bool) bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.locks[key]
	if !f(&l, time.Now().Before(l.ends)) {
		return false
	}
	s.locks[key] = l
	return true
}

func (s *foreignStore) try(key, id string, ttl time.Duration) bool {
	return s.step(key, func(l *foreignLock, live bool) bool {
		free := !live || l.id == id
		*l = foreignLock{id, time.Now().Add(ttl)}
		return free
	})
}

func (s *foreignStore) renew(key, id string, ttl time.Duration) bool {
	return s.step(key, func(l *foreignLock, live bool) bool {
		l.ends = time.Now().Add(ttl)
		return live && l.id == id
	})
}

// foreignClient is the way of one program to a foreignStore. The faults are those of wire.
type foreignClient struct {
	*foreignStore
	wire *faulty.Backend
}

// send takes f to the store and its answer back, if wire does so with a renewal.
func (c *foreignClient) send(ctx context.Context, key string, f func() bool) (ok bool, err error) {
	lost := c.wire.Renew(ctx, []driver.Ticket{{Claim: driver.Claim{Key: key}}})[0]
	if driver.Gone(lost) {
		return f(), nil
	}
	if errors.Is(lost, faulty.ErrInjected) && rand.N(2) == 0 {
		f()
	}
	return false, lost
}

func (c *foreignClient) Name() string { return "foreign" }
func (c *foreignClient) Close() error { return c.wire.Close() }

func (c *foreignClient) Try(ctx context.Context, key, id string, ttl time.Duration) (bool, error) {
	return c.send(ctx, key, func() bool { return c.try(key, id, ttl) })
}

func (c *foreignClient) Renew(ctx context.Context, key, id string, ttl time.Duration) (bool, error) {
	return c.send(ctx, key, func() bool { return c.renew(key, id, ttl) })
}

func (c *foreignClient) Release(ctx context.Context, key, id string) (bool, error) {
	return c.send(ctx, key, func() bool { return c.renew(key, id, 0) })
}

// workForeign takes a lock as the programs of the other library do. They poll, so one may get the lock late:
// it gives up when its program ends. Otherwise it would hold the lock beside programs of a phase after the next.
func (f *fleet) workForeign(ctx context.Context, who string, ends time.Time) {
	g := &grant{key: []string{"a", "b"}[f.n(2)], who: who}
	pause := func(d time.Duration) bool {
		select {
		case <-time.After(f.random(d)):
		case <-ctx.Done():
		}
		return ctx.Err() == nil
	}
	for !f.foreign.try(g.key, who, lease) {
		if !pause(200*time.Millisecond) || !time.Now().Before(ends) {
			return
		}
	}
	g.begin = time.Since(f.start)
	f.mu.Lock()
	f.grants = append(f.grants, g)
	f.mu.Unlock()
	alive := pause(lease - time.Millisecond)
	g.end = time.Since(f.start)
	if alive {
		f.foreign.renew(g.key, who, 0)
		pause(time.Second)
	}
}

func TestFleetMovesFromAForeignLockAndBack(t *testing.T) {
	moveFleets(t, 10, func(f *fleet) { f.foreign = &foreignStore{locks: map[string]foreignLock{}} })
}

func TestForeignLockIsHeldRenewedAndLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &foreignStore{locks: map[string]foreignLock{}}
		wire := faulty.New(memlock.New(), 1, faulty.Options{})
		client := testclient.New(t, bridge.New(bridge.Foreign(&foreignClient{s, wire}), memlock.New()),
			&fencelock.Options{TTL: 3 * time.Second})
		defer client.Close()
		steps.Is(t, "RLock", steps.ErrOf(client.RLock(t.Context(), "k")), driver.ErrPermanent)
		_, err := client.TryLock(t.Context(), "closed", fencelock.LockDelay(time.Second))
		if !errors.Is(err, driver.ErrPermanent) || !strings.Contains(err.Error(), "leave out LockDelay") {
			t.Errorf("a lock with a LockDelay: %v; want ErrPermanent that names it", err)
		}
		s.try("k", "another", 4*time.Second)
		begun := time.Now()
		l := testclient.Lock(t, client, "k")
		if waited := time.Since(begun); waited < 4*time.Second || waited > 5*time.Second {
			t.Errorf("the lock was granted after %v", waited)
		}
		time.Sleep(time.Minute)
		if s.try("k", "another", time.Second) {
			t.Error("the foreign lock of a holder is free")
		}
		s.step("k", func(l *foreignLock, _ bool) bool { l.id = "a thief"; return true })
		time.Sleep(2 * time.Second)
		if err := l.Err(); !errors.Is(err, fencelock.ErrLost) {
			t.Errorf("the holder believes in a foreign lock that another has: %v", err)
		} else {
			t.Log(err)
		}
		l.Release(t.Context())
	})
}

// stuckLine gives each claim a place in its line, and does not take it back.
type stuckLine struct{ bridge.ForeignLock }

func (stuckLine) Try(context.Context, string, string, time.Duration) (bool, error) { return false, nil }

func (stuckLine) Release(context.Context, string, string) (bool, error) {
	return false, driver.Refused(errors.New("no leader"))
}

// The core sends no Leave after a refusal, so a claim that may have a place in a line is not refused.
func TestForeignClaimThatMayBeInLineIsNotRefused(t *testing.T) {
	b := bridge.Foreign(stuckLine{})
	err := steps.ErrOf(b.Enter(t.Context(), steps.NoWait(steps.Claim("key"))))
	if err == nil || errors.Is(err, driver.ErrRefused) {
		t.Errorf("Enter returned %v; want an unknown outcome", err)
	}
}
