package zklock

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/faultproxy"
)

// A firewall swallows what is sent, and many calls come and are given up.
func TestServerThatSwallowsRequestsHoldsFewGoroutines(t *testing.T) {
	s := server(t)
	p := newProxy(t, s)
	b := connect(t, &Options{SessionTimeout: 60 * time.Second}, s)
	b.servers = []string{p.Addr()}
	steps.Leave(t, b, steps.Hold(t, b, steps.Claim("k")))
	before := runtime.NumGoroutine()
	p.Discard(faultproxy.ToServer, faultproxy.ToClient)
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			for n := range 50 {
				_, _ = b.Enter(within(t, 20*time.Millisecond), steps.Claim(fmt.Sprint("k", i, "-", n)))
			}
		})
	}
	all.Wait()
	if n := runtime.NumGoroutine() - before; n > 3*maxStrays {
		t.Errorf("2000 calls that were given up have left %d goroutines", n)
	}
	p.Resume()
	p.Cut()
	eventually(t, "the server is asked again", func() bool {
		k, err := b.Enter(within(t, time.Second), steps.NoWait(steps.Claim("k")))
		if err == nil {
			steps.Leave(t, b, k)
		}
		return err == nil
	})
	eventually(t, "no call goes on", func() bool { return runtime.NumGoroutine()-before < 50 })
}
