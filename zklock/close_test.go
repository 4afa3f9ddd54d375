package zklock

import (
	"runtime"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
)

// Not parallel, for it counts goroutines.
func TestCloseLeavesNoGoroutineAndNoSession(t *testing.T) {
	s := server(t)
	a := admin(t, s)
	if _, _, err := a.Children("/"); err != nil {
		t.Fatal(err)
	}
	before := runtime.NumGoroutine()
	b := New([]string{s.Addr()}, below(t, long))
	k := hold(t, b, exclusive("k"))
	w := wait(t, b, exclusive("k"))
	ended := make(chan error)
	go func() {
		for {
			if _, err := b.Await(t.Context(), w); err != nil {
				ended <- err
				return
			}
		}
	}()
	must(t, renew(b, k))
	leave(t, b, w)
	if err := <-ended; !driver.Gone(err) {
		t.Errorf("Await of a claim that left: %v", err)
	}
	leave(t, b, k)
	begun := time.Now()
	must(t, b.Close())
	if took := time.Since(begun); took > 3*time.Second {
		t.Errorf("Close took %v", took)
	}
	eventually(t, "all goroutines have ended", func() bool { return runtime.NumGoroutine() <= before })
	// The session was ended, not left to run out for nine minutes.
	if left := tree(t, a, prefix(t)+sessionsDir); len(left) > 0 {
		t.Errorf("after Close the sessions are %v", left)
	}
	empty(t, s)
}
