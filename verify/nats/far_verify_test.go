//go:build verify

package nats_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/faultproxy"
)

// One process is 20 ms away from the server, and three are near. All want one lock all the time. Of a mutex the far
// one gets half of what each near one gets, or half of what it gets when it is alone. Of a lock that several hold it
// gets less, because a line of NATS takes two round trips to read, and it is not starved.
//
//verify:fault NATS | a client is 20 ms away, and others near the server want the same lock
func TestFarClientGetsItsShare(t *testing.T) {
	for what, tt := range map[string]struct {
		driver.Claim
		part int64
	}{
		"mutex": {steps.Claim("k"), 2}, "semaphore": {steps.Permits("k", 1, 3), 10}, "readers": {steps.Reader("k"), 10},
	} {
		t.Run(what, func(t *testing.T) {
			alone, _ := share(t, tt.Claim, 0)
			far, near := share(t, tt.Claim, 3)
			t.Logf("%d grants far away, %d near; %d far away and alone", far, near, alone)
			if tt.part*far < min(near, alone) {
				t.Errorf("%d grants far away, and %d near, or %d far away and alone", far, near, alone)
			}
		})
	}
}

// share has four goroutines of each process take c for some seconds, and counts the grants of the process that is far
// away, and of each near one.
func share(t *testing.T, c driver.Claim, nearby int) (far, near int64) {
	here := bucket(t)
	proxy := faultproxy.Start(t, strings.TrimPrefix(here.URL, "nats://"), faultproxy.Framer{})
	proxy.Delay(40 * time.Millisecond) // there and back
	there := here
	there.URL = "nats://" + proxy.Addr()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // real time: what the servers do meanwhile counts
	defer cancel()
	backends := []driver.Backend{there.open(t)}
	for range nearby {
		backends = append(backends, here.open(t))
	}
	return steps.Share(ctx, t, c, backends...)
}
