package fencelock_test

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testclient"
	"github.com/fencelock/fencelock/memlock"
)

// loop is a busy loop.
func loop(stop *atomic.Bool) {
	for n := 0; !stop.Load(); n++ {
		for i := range 1 << 30 { // a second or so, without a call
			n ^= i
		}
	}
}

// On one processor beside busy loops, leases are renewed. Of one that is not renewed, Err reports
// the end at the deadline, and the context ends, too. It runs in its own process.
//
//verify:fault Processes | one processor and a busy loop
func TestHolderBesideABusyLoop(t *testing.T) {
	const variable = "FENCELOCK_TEST_BUSY"
	if os.Getenv(variable) == "" {
		t.Parallel()
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHolderBesideABusyLoop$", "-test.v")
		cmd.Env = append(os.Environ(), variable+"=1", "GOMAXPROCS=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	steps.Same(t, "processors", runtime.GOMAXPROCS(0), 1)
	var stop atomic.Bool
	defer stop.Store(true)
	for range 2 {
		go loop(&stop)
	}
	renewed := make(chan struct{}, 100)
	c := testclient.New(t, memlock.New(), &fencelock.Options{
		TTL:     15 * time.Second,
		OnEvent: testclient.On(fencelock.EventRenewed, func(fencelock.Event) { renewed <- struct{}{} }),
	})
	l := testclient.Lock(t, c, "k")
	select {
	case <-l.Context().Done():
		t.Fatalf("lost beside a busy loop: %v", l.Err())
	case <-renewed:
	}
	ok(t, l.Err())
	l = testclient.Lock(t, c, "not renewed", fencelock.NoRenewal(), fencelock.TTL(900*time.Millisecond))
	deadline := l.Deadline()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		err := l.Err()
		left := time.Until(deadline) // read after Err: the process may stand still in between
		if left <= 5*time.Millisecond {
			break
		}
		if err != nil {
			t.Fatalf("%v before its deadline a lease says %v", left, err)
		}
		<-tick.C
	}
	for time.Until(deadline) > -2*time.Millisecond { // real time: no bound, it goes on until then
		// The holder is busy as well: no timer gets its turn.
	}
	if err := l.Err(); !errors.Is(err, fencelock.ErrLost) {
		t.Errorf("%v after its deadline a lease that is not renewed says %v", time.Since(deadline), err)
	}
	<-l.Context().Done()
}
