//go:build verify

package nats_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
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
	var granted [2]atomic.Int64
	var all sync.WaitGroup
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // real time: what the servers do meanwhile counts
	defer cancel()
	for i := range 1 + nearby {
		p, count := here, &granted[1]
		if i == 0 {
			p, count = there, &granted[0]
		}
		b := p.open(t)
		for range 4 {
			all.Go(func() {
				for ctx.Err() == nil {
					if err := takeTurn(ctx, b, steps.Another(c), count); err != nil && ctx.Err() == nil {
						t.Error(err)
					}
				}
			})
		}
	}
	all.Wait()
	return granted[0].Load(), granted[1].Load() / int64(max(nearby, 1))
}

func takeTurn(ctx context.Context, b driver.Backend, c driver.Claim, granted *atomic.Int64) error {
	ticket, err := b.Enter(ctx, c)
	for err == nil && !ticket.Granted {
		ticket, err = b.Await(ctx, ticket)
	}
	if err != nil {
		return err
	}
	granted.Add(1)
	return b.Leave(ctx, ticket, driver.Exit{})
}
