package fencelock_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
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

// On one processor beside busy loops, leases are renewed. When they cannot be renewed, Err
// reports it at the deadline, and the context ends soon after. It runs in its own process.
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
	if n := runtime.GOMAXPROCS(0); n != 1 {
		t.Fatalf("%d processors", n)
	}
	var stop atomic.Bool
	defer stop.Store(true)
	for range 2 {
		go loop(&stop)
	}
	const ttl = 900 * time.Millisecond
	b := &cutOff{Backend: memlock.New(), refused: make(chan struct{})}
	c := testclient.New(t, b, &fencelock.Options{TTL: ttl})
	l, err := c.Lock(t.Context(), "k")
	must(t, err)
	select {
	case <-l.Context().Done():
		t.Fatalf("lost beside a busy loop: %v", l.Err())
	case <-time.After(2 * ttl):
	}
	ok(t, l.Err())
	b.cut.Store(true)
	<-b.refused // one that was on its way has come back
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
		t.Errorf("%v after its deadline a lease that cannot be renewed says %v", time.Since(deadline), err)
	}
	select {
	case <-l.Context().Done():
	case <-time.After(ttl):
		t.Error("the context did not end")
	}
}

// cutOff is a backend whose renewals do not arrive when cut is set.
type cutOff struct {
	driver.Backend
	cut     atomic.Bool
	once    sync.Once
	refused chan struct{} // closed when the first renewal was not let through
}

func (b *cutOff) Renew(ctx context.Context, ts []driver.Ticket) []error {
	if !b.cut.Load() {
		return b.Backend.Renew(ctx, ts)
	}
	b.once.Do(func() { close(b.refused) })
	errs := make([]error, len(ts))
	for i := range errs {
		errs[i] = errors.New("cut off")
	}
	return errs
}
