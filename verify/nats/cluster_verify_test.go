//go:build verify

package nats_test

import (
	"context"
	"crypto/rand"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/verify/natsserver"
)

// cluster starts three servers.
func cluster(t *testing.T) ([]*natsserver.Server, place) {
	t.Helper()
	all, err := natsserver.Cluster(t.TempDir(), 3)
	t.Cleanup(func() {
		for _, s := range all {
			s.Stop()
		}
	})
	steps.Must(t, err)
	var urls []string
	for _, s := range all {
		urls = append(urls, s.URL())
	}
	p := place{strings.Join(urls, ","), rand.Text(), 3}
	p.elected(t)
	return all, p
}

// elected waits until the bucket has a leader.
func (p place) elected(t *testing.T) {
	t.Helper()
	b := p.open(t)
	steps.Persist(t, "Line", func(ctx context.Context) error { return steps.ErrOf(b.Line(ctx, "k")) })
}

//verify:fault NATS | the laws, on three servers
func TestLawsOnACluster(t *testing.T) {
	_, p := cluster(t)
	drivertest.Run(t, p.open, drivertest.Lease(2*time.Second), drivertest.ExpiryLag(500*time.Millisecond))
}

//verify:fault NATS | servers of a cluster of three are killed and come back
func TestKilledServersLetNoTwoIn(t *testing.T) {
	servers, p := cluster(t)
	stop := make(chan struct{})
	var killer sync.WaitGroup
	killer.Go(func() {
		for i := 0; ; i++ {
			s := servers[i%len(servers)]
			select {
			case <-stop:
				return
			case <-time.After(3 * time.Second): // real time: what the servers do between two kills
			}
			s.Stop()
			select {
			case <-stop:
			case <-time.After(5 * time.Second): // real time: a server is down
			}
			if err := s.Start(); err != nil {
				t.Error(err)
				return
			}
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	contend(ctx, t, new(atomic.Int64), p, p, p, p)
	close(stop)
	killer.Wait()
}

// contend has a client at each place take one lock until ctx ends, counts the grants, and fails if two hold it at once
// or a token does not rise.
func contend(ctx context.Context, t *testing.T, grants *atomic.Int64, places ...place) {
	t.Helper()
	var inside atomic.Int32
	var last atomic.Int64
	var all sync.WaitGroup
	for _, p := range places {
		b := p.open(t)
		for range 3 {
			all.Go(func() {
				for ctx.Err() == nil {
					c := steps.TTL(steps.Claim("k"), 30*time.Second)
					sent := time.Now()
					ticket, err := b.Enter(ctx, c)
					for err == nil && !ticket.Granted && time.Since(sent) < 20*time.Second {
						ticket, err = b.Await(ctx, ticket)
					}
					if err != nil || !ticket.Granted {
						leave(b, driver.Ticket{Claim: c}, driver.Exit{Tombstone: true})
						continue
					}
					if n := inside.Add(1); n > 1 {
						t.Errorf("%d hold the lock", n)
					}
					if was := last.Swap(ticket.Token); was >= ticket.Token {
						t.Errorf("token %d follows %d", ticket.Token, was)
					}
					grants.Add(1)
					inside.Add(-1)
					leave(b, ticket, driver.Exit{})
				}
			})
		}
	}
	all.Wait()
	t.Logf("%d grants", grants.Load())
	if grants.Load() == 0 {
		t.Error("no lock was granted")
	}
}

// leave leaves again and again, for a few seconds.
func leave(b driver.Backend, ticket driver.Ticket, e driver.Exit) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for ctx.Err() == nil {
		if err := b.Leave(ctx, ticket, e); err == nil || driver.Gone(err) {
			return
		}
	}
}
