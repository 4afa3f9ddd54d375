package zklock

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testclient"
	"github.com/fencelock/fencelock/internal/testserver"
)

func lock(t testing.TB, c *fencelock.Client, key string, opts ...fencelock.Option) *fencelock.Lease {
	t.Helper()
	l, err := c.Lock(t.Context(), key, opts...)
	steps.Must(t, err)
	return l
}

// A holder that is cut off is told by its context before the next one is granted, and
// its token is the smaller one.
func TestCutOffHolderIsToldBeforeTheNextIsGranted(t *testing.T) {
	s, p := proxied(t)
	const ttl = 2 * time.Second
	cutOff := testclient.New(t, through(t, p, &Options{SessionTimeout: 3 * time.Second}), &fencelock.Options{TTL: ttl})
	other := testclient.New(t, connect(t, long, s), nil)
	defer other.Close()
	lease := lock(t, cutOff, "k")
	// It holds for longer than its session would last without renewals. Another session
	// says how long the server takes for an answer meanwhile: a lease ends if that is longer.
	for {
		slowest := time.Duration(0)
		for end := time.Now().Add(4 * time.Second); time.Now().Before(end); <-after(20 * time.Millisecond) {
			began := time.Now()
			steps.Must(t, other.Do(t.Context(), "probe", func(context.Context, *fencelock.Lease) error { return nil }))
			slowest = max(slowest, time.Since(began))
		}
		err := lease.Err()
		if err == nil {
			break
		}
		t.Logf("a lease that is renewed ended: %v; another lock was taken and left within %v", err, slowest)
		if slowest < ttl/3 {
			t.Fatalf("a renewal has %v", ttl/3)
		}
		if lease, err = cutOff.Lock(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
	}
	p.Refuse()
	next := make(chan time.Time, 1)
	go func() {
		l, err := other.Lock(t.Context(), "k")
		next <- time.Now()
		if err != nil {
			t.Errorf("the next Lock: %v", err)
			return
		}
		steps.Rises(t, lease.Token(), l.Token())
		steps.OK(t, l.Release(context.WithoutCancel(t.Context())))
	}()
	<-lease.Context().Done()
	told := time.Now()
	if cause := context.Cause(lease.Context()); !errors.Is(cause, fencelock.ErrExpired) {
		t.Errorf("the cause is %v; want that it expired", cause)
	}
	if granted := <-next; granted.Before(told) {
		t.Errorf("the next holder was granted %v before the one before it was told", told.Sub(granted))
	}
	p.Resume()
	steps.Is(t, "Release after the loss", lease.Release(t.Context()), fencelock.ErrLost)
	leaseAgain := lock(t, cutOff, "k")
	steps.OK(t, leaseAgain.Release(t.Context()))
	cutOff.Close()
	empty(t, s)
}

// Not parallel, for it counts goroutines.
//
//verify:fault ZooKeeper | nothing is left
func TestCloseLeavesNoGoroutineAndNoSession(t *testing.T) {
	s := server(t)
	a := admin(t, s)
	if _, _, err := a.Children("/"); err != nil {
		t.Fatal(err)
	}
	before := runtime.NumGoroutine()
	b := New([]string{s.Addr()}, below(t, long))
	k := steps.Hold(t, b, steps.Claim("k"))
	w := steps.Wait(t, b, steps.Claim("k"))
	ended := make(chan error)
	go func() {
		for {
			if _, err := b.Await(t.Context(), w); err != nil {
				ended <- err
				return
			}
		}
	}()
	steps.Must(t, renew(b, k))
	steps.Leave(t, b, w)
	steps.Gone(t, "Await of a claim that left", <-ended)
	steps.Leave(t, b, k)
	begun := time.Now()
	steps.Must(t, b.Close())
	steps.TookAtMost(t, begun, 3*time.Second)
	eventually(t, "all goroutines have ended", func() bool { return runtime.NumGoroutine() <= before })
	// The session was ended, not left to run out for nine minutes.
	if left := tree(t, a, prefix(t)+sessionsDir); len(left) > 0 {
		t.Errorf("after Close the sessions are %v", left)
	}
	empty(t, s)
}

// A server may grant a shorter session than it is asked for. Leases are two thirds of that then,
// whether the call may wait or not.
func TestLeaseLongerThanTheSessionIsShortened(t *testing.T) {
	t.Parallel()
	s := testserver.ZooKeeper(t, testserver.Config("maxSessionTimeout=6000"))
	c := testclient.New(t, New([]string{s.Addr()}, nil), &fencelock.Options{TTL: time.Second})
	defer c.Close()
	for name, opts := range map[string][]fencelock.Option{
		"not renewed": {fencelock.NoRenewal(), fencelock.TTL(20 * time.Second)},
	} {
		l := lock(t, c, name, append(opts, fencelock.Wait(10*time.Second))...)
		steps.Same(t, name+": the lease lasts", l.TTL(), 4*time.Second)
		steps.OK(t, l.Release(t.Context()))
	}
}
