package zklock

import (
	"runtime"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testclient"
	"github.com/fencelock/fencelock/internal/testserver"
)

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

// A server may grant a shorter session than it is asked for. Leases are two thirds of that then.
func TestLeaseLongerThanTheSessionIsShortened(t *testing.T) {
	t.Parallel()
	s := testserver.ZooKeeper(t, testserver.Config("maxSessionTimeout=6000"))
	c := testclient.New(t, New([]string{s.Addr()}, nil), &fencelock.Options{TTL: time.Second})
	defer c.Close()
	l := testclient.Lock(t, c, "k", fencelock.NoRenewal(), fencelock.TTL(20*time.Second), fencelock.Wait(10*time.Second))
	steps.Same(t, "the lease lasts", l.TTL(), 4*time.Second)
	steps.OK(t, l.Release(t.Context()))
}
