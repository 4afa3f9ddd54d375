package zklock

import (
	"runtime"
	"testing"
	"time"

	"github.com/fencelock/fencelock/drivertest/steps"
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
	steps.Must(t, steps.Renew(t, b, k))
	steps.Leave(t, b, w)
	steps.Gone(t, "Await of a claim that left", <-ended)
	steps.Leave(t, b, k)
	begun := time.Now()
	steps.Must(t, b.Close())
	steps.TookAtMost(t, begun, time.Minute) // of nine
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
	b := connect(t, &Options{SessionTimeout: time.Hour}, server(t))
	k := steps.Hold(t, b, steps.TTL(steps.Claim("k"), 30*time.Minute))
	steps.Same(t, "the lease in a session of ten minutes", k.TTL, 10*time.Minute*2/3)
	k.TTL = 30 * time.Minute
	steps.Unknown(t, "a renewal beyond that", steps.Renew(t, b, k))
	steps.Leave(t, b, k)
}
