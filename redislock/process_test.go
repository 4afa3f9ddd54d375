package redislock

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/internal/testclient"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/internal/worker"
)

func TestMain(m *testing.M) {
	worker.Main(obey)
	testserver.Parallel("4")
	m.Run()
}

// order says what a worker is to do: lock Key with a Client, and then what its parent says.
type order struct {
	Store address
	Key   string
	TTL   time.Duration
}

// obey locks the key, and tells the parent "waits", "held" with the token, and what it asks.
func obey(o order) error {
	rdb := o.Store.dial()
	defer rdb.Close()
	c, err := fencelock.New(New(rdb, nil), &fencelock.Options{
		TTL:     o.TTL,
		OnEvent: testclient.On(fencelock.EventWaiting, func(fencelock.Event) { worker.Say("waits") }),
	})
	if err != nil {
		return err
	}
	defer c.Close()
	lease, err := c.Lock(context.Background(), o.Key)
	if err != nil {
		return err
	}
	worker.Say("held", lease.Token())
	for {
		switch worker.Told() {
		case "look":
			// What it says at its first look, with no time to hear of anything.
			worker.Say("lost", errors.Is(lease.Err(), fencelock.ErrLost))
		case "leave":
			if err := lease.Release(context.Background()); err != nil {
				worker.Say("left", err)
			} else {
				worker.Say("left ok")
			}
			return nil
		}
	}
}

func (g *group) start(key string, ttl time.Duration) *worker.Process {
	g.t.Helper()
	return worker.Start(g.t, order{Store: g.address(), Key: key, TTL: ttl})
}

// A killed holder's lock is free when its lease is over, and a killed waiter delays
// nobody for longer than its own.
func TestKilledProcessesOfGroups(t *testing.T) {
	onEach(t, stores, func(t *testing.T, g *group) {
		const ttl = 1500 * time.Millisecond
		c := client(t, g, ttl, nil)

		holder := g.start("holder", ttl)
		holder.Until("held")
		head := g.start("holder", ttl)
		head.Until("waits")
		holder.Kill()
		killed := time.Now()
		head.Until("held")
		tookAtMost(t, killed, ttl+time.Second)
		head.Tell("leave")
		head.Until("left ok")

		lease := lock(t, c, "waiter")
		head = g.start("waiter", ttl)
		head.Until("waits")
		behind := g.start("waiter", ttl)
		behind.Until("waits")
		head.Kill()
		killed = time.Now()
		must(t, lease.Release(t.Context()))
		behind.Until("held")
		tookAtMost(t, killed, ttl+time.Second)
		behind.Tell("leave")
		behind.Until("left ok")
	})
}
