//go:build verify

package nats_test

import (
	"context"
	"crypto/rand"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/faultproxy"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/verify/natsserver"
)

// network is three servers of which each reaches each other one through a proxy of its own.
type network struct {
	servers []*natsserver.Server
	ways    [3][3]*faultproxy.Proxy
	bucket  string
}

func startNetwork(t *testing.T) *network {
	t.Helper()
	n := &network{bucket: rand.Text()}
	var err error
	n.servers, err = natsserver.ClusterThrough(t.TempDir(), 3, func(i, j int, addr string) (string, error) {
		n.ways[i][j] = faultproxy.Start(t, addr, faultproxy.Framer{})
		return n.ways[i][j].Addr(), nil
	})
	t.Cleanup(func() {
		n.each(func(p *faultproxy.Proxy, _, _ int) { p.Resume() })
		for _, s := range n.servers {
			s.Stop()
		}
	})
	steps.Must(t, err)
	n.at(0).elected(t)
	return n
}

func (n *network) each(f func(p *faultproxy.Proxy, from, to int)) {
	for i, ways := range n.ways {
		for j, p := range ways {
			if p != nil {
				f(p, i, j)
			}
		}
	}
}

// isolate has nothing pass between server i and the others until join. Connections stay open.
func (n *network) isolate(i int) {
	n.each(func(p *faultproxy.Proxy, from, to int) {
		if from == i || to == i {
			p.Hold(faultproxy.ToServer, faultproxy.ToClient)
		}
	})
}

func (n *network) join() { n.each(func(p *faultproxy.Proxy, _, _ int) { p.Resume() }) }

// at is the bucket for clients of one server.
func (n *network) at(i int) place { return place{n.servers[i].URL(), n.bucket, 3} }

// A holder and its server lose the others. Its lease ends, a waiter at the others is granted, and the holder hears
// that once they are together again.
//
//verify:fault NATS | one server of three is cut off from the others, with the holder
func TestHolderAtAnIsolatedServerLosesItsLock(t *testing.T) {
	n := startNetwork(t)
	for i := range n.servers { // one of them leads the stream
		isolated, other := n.at(i).open(t), n.at((i+1)%3).open(t)
		holder := steps.PersistEnter(t, isolated, steps.TTL(steps.Claim("k"), 20*time.Second))
		waiter := steps.PersistEnter(t, other, steps.TTL(steps.Claim("k"), time.Minute))
		if !holder.Granted || waiter.Granted {
			t.Fatalf("the holder is %+v, the waiter %+v", holder, waiter)
		}
		n.isolate(i)
		if steps.Renew(t, isolated, holder) == nil {
			t.Error("the holder at the isolated server has renewed its lease")
		}
		waiter = steps.Within(t, 2*time.Minute, steps.Await(t, other, waiter))
		steps.Rises(t, holder.Token, waiter.Token)
		n.join()
		testserver.Eventually(t, time.Minute, "the holder hears that its lease is over", func() bool {
			err := isolated.Renew(t.Context(), []driver.Ticket{holder})[0]
			if err == nil {
				t.Fatal("a lease that is over was renewed")
			}
			return driver.Gone(err)
		})
		if err := other.Leave(t.Context(), waiter, driver.Exit{}); err != nil && !driver.Gone(err) {
			t.Error(err)
		}
		next := steps.Granted(t, isolated, steps.PersistEnter(t, isolated, steps.Claim("k")))
		steps.OK(t, isolated.Leave(t.Context(), next, driver.Exit{}))
	}
}

// Clients of all three servers want one lock, and one server after another is cut off. The others grant meanwhile.
//
//verify:fault NATS | one server of three after another is cut off from the others
func TestIsolatedServersLetNoTwoIn(t *testing.T) {
	n := startNetwork(t)
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	var grants atomic.Int64
	// granted waits for some grants, or the end of the run, and returns false if there are none in a minute.
	granted := func() bool {
		before, late := grants.Load(), time.After(time.Minute) // real time: the others elect a leader and grant
		for grants.Load() < before+20 {
			select {
			case <-ctx.Done():
				return true
			case <-late:
				return grants.Load() > before
			case <-time.After(100 * time.Millisecond): // real time: it looks again
			}
		}
		return true
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ctx.Err() == nil; i++ {
			n.isolate(i % 3)
			if !granted() {
				t.Errorf("without server %d no lock was granted in a minute", i%3)
			}
			n.join()
			granted()
		}
	}()
	contend(ctx, t, &grants, n.at(0), n.at(1), n.at(2))
	<-done
}

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
	return steps.Share(ctx, t, c, 4, backends...)
}

// The seeds are the same each time: what they find stays found.
func TestAnswersAreThoseOfTheModelAlways(t *testing.T) {
	drivertest.Model(t, bucket(t).open, steps.Seeds(200)...)
}
