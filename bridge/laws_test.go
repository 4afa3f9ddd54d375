package bridge_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/bridge"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/memlock"
)

// bridges opens views of one bridge from memory to memory.
func bridges() drivertest.Opener {
	old, new := memlock.New(), memlock.New()
	return func(*testing.T) driver.Backend { return bridge.New(old, new) }
}

func TestBridgeKeepsTheLaws(t *testing.T) {
	drivertest.Run(t, bridges(), drivertest.InBubbles(), drivertest.TokenGrows(),
		drivertest.ExpiryLag(0))
}

// counted counts the requests to a store.
type counted struct {
	*memlock.Store
	enter, renew, leave atomic.Int32
}

func (s *counted) Enter(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
	s.enter.Add(1)
	return s.Store.Enter(ctx, c)
}

func (s *counted) Renew(ctx context.Context, ts []driver.Ticket) []error {
	s.renew.Add(1)
	return s.Store.Renew(ctx, ts)
}

func (s *counted) Leave(ctx context.Context, t driver.Ticket, e driver.Exit) error {
	s.leave.Add(1)
	return s.Store.Leave(ctx, t, e)
}

// paused is a store that calls something after each Enter and before each Leave.
type paused struct {
	*memlock.Store
	entered, leaving func()
}

func (s *paused) Enter(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
	t, err := s.Store.Enter(ctx, c)
	s.entered()
	return t, err
}

func (s *paused) Leave(ctx context.Context, t driver.Ticket, e driver.Exit) error {
	s.leaving()
	return s.Store.Leave(ctx, t, e)
}

// A Lock that does not wait is cancelled while its Enter is under way, and so is the repeat of that. The first Enter is
// refused while the Leave has barred the claim in the old store only. The lock is free then, and the old store grants
// the second Enter before the Leave is there: it stayed in the new store until its lease ended.
func TestRepeatedEnterBesideALeave(t *testing.T) {
	nothing := func() {}
	old := &paused{memlock.New(), nothing, nothing}
	b := bridge.New(old, memlock.New())
	c := steps.NoWait(steps.Claim("k"))
	holder, err := b.Enter(t.Context(), steps.Claim("k"))
	steps.Must(t, err)
	begun, proceed, left := make(chan bool), make(chan bool), make(chan error, 1)
	old.entered = func() {
		old.entered = nothing
		old.leaving = func() {
			close(begun)
			<-proceed
		}
		go func() { left <- b.Leave(context.Background(), driver.Ticket{Claim: c}, driver.Exit{Tombstone: true}) }()
		<-begun
		old.leaving = nothing
	}
	if got, err := b.Enter(t.Context(), c); err == nil {
		t.Fatalf("the first Enter was granted %+v beside the holder", got)
	}
	steps.Must(t, b.Leave(t.Context(), holder, driver.Exit{}))
	old.entered = func() {
		old.entered = nothing
		close(proceed)
		if err := <-left; err != nil && !driver.Gone(err) {
			t.Errorf("Leave: %v", err)
		}
	}
	if got, err := b.Enter(t.Context(), c); !driver.Gone(err) {
		t.Errorf("the second Enter was told %+v, %v after the Leave", got, err)
	}
	l, err := b.Line(t.Context(), "k")
	steps.Must(t, err)
	if len(l.Claims) > 0 {
		t.Errorf("%+v are in line, and all have left", l.Claims)
	}
}

// A bridge costs the requests of both stores, and not one more.
func TestLockCostsTheRequestsOfBothStores(t *testing.T) {
	use := func(t *testing.T, b driver.Backend) {
		c, err := fencelock.New(b, &fencelock.Options{TTL: 30 * time.Second})
		steps.Must(t, err)
		defer c.Close()
		for range 3 {
			l, err := c.Lock(t.Context(), "k")
			steps.Must(t, err)
			time.Sleep(time.Minute) // of renewals
			steps.Must(t, l.Release(t.Context()))
		}
	}
	synctest.Test(t, func(t *testing.T) {
		alone, old, new := &counted{Store: memlock.New()}, &counted{Store: memlock.New()}, &counted{Store: memlock.New()}
		use(t, alone)
		use(t, bridge.New(old, new))
		for name, s := range map[string]*counted{"alone": alone, "the old store": old, "the new store": new} {
			enter, renew, leave := s.enter.Load(), s.renew.Load(), s.leave.Load()
			if enter != 3 || leave != 3 || renew < 6 || renew > 60 { // renewals have jitter
				t.Errorf("%s: %d Enters, %d renewals, %d Leaves", name, enter, renew, leave)
			}
		}
	})
}
