package bridge_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencelock/fencelock/bridge"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest"
	"github.com/fencelock/fencelock/drivertest/faulty"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testclient"
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

// watched counts its calls. Each of its hooks is called once: after an Enter or an Await, or before a Renew or a Leave.
type watched struct {
	*memlock.Store
	mu    sync.Mutex
	calls map[faulty.Method]int
	hooks map[faulty.Method]func()
}

func watch(s *memlock.Store) *watched {
	return &watched{Store: s, calls: map[faulty.Method]int{}, hooks: map[faulty.Method]func(){}}
}

func (w *watched) note(m faulty.Method) {
	w.mu.Lock()
	hook := w.hooks[m]
	delete(w.hooks, m)
	w.calls[m]++
	w.mu.Unlock()
	if hook != nil {
		hook()
	}
}

func (w *watched) Enter(ctx context.Context, c driver.Claim) (driver.Ticket, error) {
	defer w.note(faulty.Enter)
	return w.Store.Enter(ctx, c)
}

func (w *watched) Await(ctx context.Context, t driver.Ticket) (driver.Ticket, error) {
	defer w.note(faulty.Await)
	return w.Store.Await(ctx, t)
}

func (w *watched) Renew(ctx context.Context, ts []driver.Ticket) []error {
	w.note(faulty.Renew)
	return w.Store.Renew(ctx, ts)
}

func (w *watched) Leave(ctx context.Context, t driver.Ticket, e driver.Exit) error {
	w.note(faulty.Leave)
	return w.Store.Leave(ctx, t, e)
}

// A Lock that does not wait is cancelled while its Enter is under way, and so is the repeat of that. The first Enter is
// refused while the Leave has barred the claim in the old store only. The lock is free then, and the old store grants
// the second Enter before the Leave is there: it stayed in the new store until its lease ended.
func TestRepeatedEnterBesideALeave(t *testing.T) {
	old := watch(memlock.New())
	b := bridge.New(old, memlock.New())
	c := steps.NoWait(steps.Claim("k"))
	holder := steps.Hold(t, b, steps.Claim("k"))
	begun, proceed, left := make(chan bool), make(chan bool), make(chan error, 1)
	old.hooks[faulty.Enter] = func() {
		old.hooks[faulty.Leave] = func() {
			close(begun)
			<-proceed
		}
		go func() { left <- b.Leave(context.Background(), driver.Ticket{Claim: c}, driver.Exit{Tombstone: true}) }()
		<-begun
	}
	steps.Refused(t, b, c)
	steps.Leave(t, b, holder)
	old.hooks[faulty.Enter] = func() {
		close(proceed)
		if err := <-left; err != nil && !driver.Gone(err) {
			t.Errorf("Leave: %v", err)
		}
	}
	steps.Gone(t, "the second Enter, after the Leave", steps.ErrOf(b.Enter(t.Context(), c)))
	steps.InLine(t, "after all have left", b, "k", 0)
}

// A bridge costs the requests of both stores, and not one more.
func TestLockCostsTheRequestsOfBothStores(t *testing.T) {
	use := func(t *testing.T, b driver.Backend) {
		c := testclient.New(t, b, nil)
		defer c.Close()
		for range 3 {
			l := testclient.Lock(t, c, "k")
			time.Sleep(time.Minute) // of renewals
			steps.Must(t, l.Release(t.Context()))
		}
	}
	synctest.Test(t, func(t *testing.T) {
		alone, old, new := watch(memlock.New()), watch(memlock.New()), watch(memlock.New())
		use(t, alone)
		use(t, bridge.New(old, new))
		for name, s := range map[string]*watched{"alone": alone, "the old store": old, "the new store": new} {
			n := s.calls[faulty.Renew] // renewals have jitter
			if s.calls[faulty.Enter] != 3 || s.calls[faulty.Leave] != 3 || n < 6 || n > 60 {
				t.Errorf("%s was called so often: %v", name, s.calls)
			}
		}
	})
}
