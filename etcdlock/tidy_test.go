package etcdlock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testclient"
	"github.com/fencelock/fencelock/internal/testserver"
)

// TestNothingIsLeft uses everything, closes, and looks at what the server has.
//
//verify:fault etcd | nothing is left
func TestNothingIsLeft(t *testing.T) {
	t.Parallel()
	x := sceneOn(t, testserver.Etcd(t))
	a, b := x.backend(), x.backend()
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for _, c := range []driver.Claim{steps.Claim("k"), steps.Reader("k"), steps.Permits("s", 1, 2), steps.TTL(steps.Claim("k"), time.Minute)} {
				view := []driver.Backend{a, b}[i%2]
				k, err := view.Enter(steps.Soon(t), c)
				for err == nil && !k.Granted {
					k, err = view.Await(steps.Soon(t), k)
				}
				if err == nil {
					err = view.Leave(steps.Soon(t), k, driver.Exit{})
				}
				steps.OK(t, err)
			}
		})
	}
	group.Wait()
	a.Close()
	b.Close()
	if left := x.leases(); len(left) > 0 {
		t.Errorf("%d leases are left after Close", len(left))
	}
	if left := x.keys(""); len(left) > 0 {
		t.Errorf("keys are left: %v", left)
	}
	if told, err := metrics(x.server); err != nil || told[watchers] != "0" {
		t.Errorf("%s watches are left, %v", told[watchers], err)
	}
}

// TestLeaseInItsLastSecondIsGivenBack: a server says of a lease that ends within a second
// that it has 0 seconds left.
func TestLeaseInItsLastSecondIsGivenBack(t *testing.T) {
	t.Parallel()
	x := sceneOn(t, testserver.Etcd(t))
	b := x.backend()
	left := int64(1)
	for asked := steps.Soon(t); left > 0; sleep(10 * time.Millisecond) {
		ids := x.leases()
		if len(ids) == 0 { // at first, and if the last second was missed
			steps.Leave(t, b, steps.Hold(t, b, steps.TTL(steps.Claim("k"), lease)))
			continue
		}
		l, err := x.etcd.TimeToLive(asked, ids[0])
		steps.Must(t, err)
		if l.GrantedTTL > 0 {
			left = l.TTL
		}
	}
	b.Close()
	if n := len(x.leases()); n > 0 {
		t.Errorf("%d leases are left after Close", n)
	}
}

// TestTombstonesExpire: what keeps an id out is gone after two of its leases.
func TestTombstonesExpire(t *testing.T) {
	t.Parallel()
	x := sceneOn(t, testserver.Etcd(t))
	b := x.backend()
	for range 5 {
		if err := b.Leave(steps.Soon(t), driver.Ticket{Claim: steps.TTL(steps.Claim("k"), lease)}, driver.Exit{Tombstone: true}); !driver.Gone(err) {
			t.Fatal(err)
		}
	}
	broken := steps.Hold(t, b, steps.TTL(steps.Claim("k"), 5*lease))
	steps.Must(t, b.Break(steps.Soon(t), "k", broken.Token, driver.Break{Reason: "x"}))
	b.Close()
	testserver.Eventually(t, time.Minute, "no key and no lease is left", func() bool { return len(x.keys(""))+len(x.leases()) == 0 })
}

// TestCloseKeepsTheLeaseOfAClaim: a lease that something hangs on is not revoked.
func TestCloseKeepsTheLeaseOfAClaim(t *testing.T) {
	_, a, b := sceneOfTwo(t)
	// Enters are under way while the Backend is closed: none may be granted and then
	// lose its lease to Close.
	var group sync.WaitGroup
	var mu sync.Mutex
	var held []driver.Ticket
	for i := range 20 {
		group.Go(func() {
			k, err := a.Enter(steps.Soon(t), steps.Claim(fmt.Sprint(i)))
			if err == nil {
				mu.Lock()
				held = append(held, k)
				mu.Unlock()
			} else if !errors.Is(err, driver.ErrClosed) {
				t.Error(err)
			}
		})
	}
	first := steps.Hold(t, a, steps.Claim("first"))
	sleep(2 * time.Millisecond)
	a.Close()
	group.Wait()
	for _, k := range append(held, first) {
		steps.Same(t, "a claim that was granted is gone after Close", len(claims(t, b, k.Key)), 1)
	}
	for l, err := range b.Lines(steps.Soon(t), "") {
		steps.Must(t, err)
		steps.OK(t, b.Break(steps.Soon(t), l.Key, l.Claims[0].Token, driver.Break{Reason: "end"}))
	}
}

// TestTriesOnASemaphoreLeaveNoTrace: a try that is refused was never in line, not
// even for a moment, and all slots are given away.
func TestTriesOnASemaphoreLeaveNoTrace(t *testing.T) {
	t.Parallel()
	x := newScene(t)
	const size, tries = 3, 24
	a, b := x.backend(), x.backend()
	watching, stop := context.WithCancel(steps.Soon(t))
	defer stop()
	var most atomic.Int64
	watched := make(chan struct{})
	events := x.etcd.Watch(watching, x.prefix, clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	<-events
	go func() {
		defer close(watched)
		line := map[string]bool{}
		for r := range events {
			for _, e := range r.Events {
				if e.Type == clientv3.EventTypePut {
					line[string(e.Kv.Key)] = true
				} else {
					delete(line, string(e.Kv.Key))
				}
				most.Store(max(most.Load(), int64(len(line))))
			}
			if len(line) == 0 && most.Load() > 0 {
				return
			}
		}
	}()
	var group sync.WaitGroup
	held := make(chan driver.Ticket, tries)
	for i := range tries {
		group.Go(func() {
			k, err := []driver.Backend{a, b}[i%2].Enter(steps.Soon(t), steps.NoWait(steps.Permits("s", 1, size)))
			var busy *driver.BusyError
			switch {
			case err == nil && k.Granted:
				held <- k
			case !errors.As(err, &busy):
				t.Errorf("a try answered granted %v, error %v", k.Granted, err)
			}
		})
	}
	group.Wait()
	close(held)
	if len(held) != size {
		t.Errorf("%d of %d slots were given away", len(held), size)
	}
	for k := range held {
		steps.Leave(t, a, k)
	}
	<-watched
	if n := most.Load(); n > size {
		t.Errorf("%d claims were in line at once; want %d at most: a refused one was written", n, size)
	}
}

// TestRefusedReaderAndWriterAreNotWritten is the same for the read-write lock.
func TestRefusedReaderAndWriterAreNotWritten(t *testing.T) {
	t.Parallel()
	x := newScene(t)
	a := x.backend()
	k := steps.Hold(t, a, steps.Claim("k"))
	before, err := x.etcd.Get(steps.Soon(t), x.prefix, clientv3.WithPrefix())
	steps.Must(t, err)
	for _, c := range []driver.Claim{steps.Claim("k"), steps.Reader("k"), steps.Permits("k", 1, 2)} {
		steps.Refused(t, a, c)
	}
	history := x.etcd.Watch(steps.Soon(t), x.prefix, clientv3.WithPrefix(), clientv3.WithRev(before.Header.Revision+1))
	steps.Leave(t, a, k)
	r := <-history
	puts := slices.ContainsFunc(r.Events, func(e *clientv3.Event) bool { return e.Type != clientv3.EventTypeDelete })
	if len(r.Events) != 1 || puts {
		t.Errorf("refused claims wrote something: %v", r.Events)
	}
}

// TestFormatOfAnotherVersion is refused, not guessed at.
//
//verify:fault The API, on all stores | two versions of the library on one key
func TestFormatOfAnotherVersion(t *testing.T) {
	x, b := sceneOfOne(t)
	for _, value := range []string{`{"v":2,"x":1}`, "something else", ""} {
		name := x.prefix + "k/wAAAA"
		x.put(name, value)
		_, err := b.Enter(steps.Soon(t), steps.NoWait(steps.Claim("k")))
		steps.Permanent(t, fmt.Sprintf("Enter beside a claim %q", value), err)
		_, err = b.Line(steps.Soon(t), "k")
		steps.Permanent(t, fmt.Sprintf("Line with a claim %q", value), err)
		x.remove(name)
	}
}

// TestUnreadableLineIsNotJoined: a claim may be in line before its Backend finds a record that
// it cannot read. Its caller is told that it has not joined, so it leaves again.
func TestUnreadableLineIsNotJoined(t *testing.T) {
	x, b := sceneOfOne(t)
	for name, c := range map[string]driver.Claim{
		"k/w0": steps.Claim("k"), "k/w1": steps.Reader("k"), "k/p0": steps.Permits("k", 1, 2), "k/m": steps.Claim("k"),
	} {
		x.put(x.prefix+name, `{"v":1,"id":"x","capacity":2,"weight":-1,"mark":5}`)
		steps.Permanent(t, "Enter beside "+name, steps.ErrOf(b.Enter(steps.Soon(t), c)))
		if names := x.keys("k/"); len(names) != 1 {
			t.Errorf("after an Enter that was refused for %s the line has %v", name, names)
		}
		x.remove(x.prefix+"k/", clientv3.WithPrefix())
	}
}

func lock(t testing.TB, c *fencelock.Client, key string, opts ...fencelock.Option) *fencelock.Lease {
	t.Helper()
	l, err := c.Lock(t.Context(), key, opts...)
	steps.Must(t, err)
	return l
}

// TestHolderIsToldOfARevokedLease goes through the whole library.
func TestHolderIsToldOfARevokedLease(t *testing.T) {
	t.Parallel()
	x := sceneOn(t, testserver.Etcd(t))
	c := testclient.New(t, x.backend(), &fencelock.Options{TTL: 9 * time.Second})
	defer c.Close()
	l := lock(t, c, "k")
	testserver.Eventually(t, time.Minute, "it is renewed more than once", func() bool { return requests(t, x.server)["LeaseKeepAlive"] > 1 })
	steps.Must(t, l.Err())
	x.revoke(x.leases()...)
	select {
	case <-l.Context().Done():
		steps.Is(t, "the context", context.Cause(l.Context()), fencelock.ErrBroken)
	case <-time.After(time.Minute):
		t.Error("a holder whose lease was revoked is not told")
	}
	again, err := c.TryLock(steps.Soon(t), "k")
	steps.Must(t, err)
	steps.Rises(t, l.Token(), again.Token())
	steps.OK(t, again.Release(steps.Soon(t)))
}
