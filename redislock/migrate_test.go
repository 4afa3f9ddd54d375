package redislock

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/redis/go-redis/v9"
)

// inOneSlot keeps all locks in one slot.
var inOneSlot = &Options{Prefix: "fencelock:{one}:"}

// elsewhere returns a master that does not have the slot.
func elsewhere(g *group, slot int) *testserver.Server {
	has := g.cluster.Master(slot)
	for _, s := range g.servers()[:3] {
		if s != has {
			return s
		}
	}
	return nil
}

// move takes a slot to another master, and calls limbo twice on the way: before the
// first key has moved, and after the last.
func move(t *testing.T, g *group, slot int, limbo func(stage string)) {
	t.Helper()
	m, err := g.cluster.BeginMove(slot, elsewhere(g, slot))
	if err != nil {
		t.Fatal(err)
	}
	limbo("all keys are where they were")
	drain(t, m)
	limbo("all keys have moved")
	// New ones may have come to the old place: locks that had gone there first.
	drain(t, m)
	must(t, m.End())
}

func drain(t *testing.T, m *testserver.Move) {
	t.Helper()
	for moved := true; moved; {
		var err error
		if moved, err = m.Key(); err != nil {
			t.Fatal(err)
		}
	}
}

// While its slot moves a free lock can be taken, renewed and left, and so can one that
// others wait for; who comes second waits until the slot has arrived. Replicas confirm what they have to: WAIT goes to
// the node that has the lock.
func TestLocksOfASlotThatMoves(t *testing.T) {
	t.Parallel()
	g := calm(clusterGroup)(t)
	b := g.connect(&Options{Prefix: inOneSlot.Prefix, Replicas: 1, ReplicaWait: time.Minute})
	slot := int(hashSlot(b.hashName("any")))
	alone, marked := hold(t, b, mutex("alone")), hold(t, b, mutex("marked"))
	must(t, b.Leave(t.Context(), marked, driver.Exit{Mark: "m"}))
	contended := hold(t, b, mutex("contended"))
	waiter := wait_(t, b, mutex("contended"))
	stages := 0
	move(t, g, slot, func(stage string) {
		stages++
		for i := range 3 {
			key := fmt.Sprintf("free %d %d", stages, i)
			k := hold(t, b, mutex(key))
			for j, err := range b.Renew(t.Context(), []driver.Ticket{k, alone, contended, waiter}) {
				if err != nil {
					t.Errorf("%s: Renew of claim %d: %v", stage, j, err)
				}
			}
			inLine(t, stage+": a held lock", b, key, 1)
			must(t, b.Leave(t.Context(), k, driver.Exit{Mark: "m"}))
			leave(t, b, hold(t, b, mutex(key)))
		}
		if k := hold(t, b, mutex("marked")); k.Mark != "m" {
			t.Errorf("%s: the mark is %q", stage, k.Mark)
		} else {
			leave(t, b, k)
		}
		_, err := b.Enter(t.Context(), noWait(mutex("alone")))
		if busy := (*driver.BusyError)(nil); !errors.As(err, &busy) {
			t.Errorf("%s: a try on a held lock answered %v", stage, err)
		}
		steps.Unknown(t, stage+": joining the line of a single holder", steps.ErrOf(b.Enter(t.Context(), mutex("alone"))))
		inLine(t, stage+": what was refused leaves nothing", b, "alone", 1)
		// A line of several is all there, on either side.
		third := wait_(t, b, mutex("contended"))
		steps.Well(t, stage+": Renew of one who joined", renew(t, b, third))
		leave(t, b, third)
	})
	if stages != 2 {
		t.Fatalf("%d stages", stages)
	}
	late := wait_(t, b, mutex("alone"))
	leave(t, b, alone)
	granted(t, b, late)
	leave(t, b, late)
	leave(t, b, contended)
	granted(t, b, waiter)
	leave(t, b, waiter)
}

// scripts counts the requests with scripts that a client sends.
type scripts struct{ n atomic.Int64 }

type scriptsConn struct {
	net.Conn
	scripts *scripts
}

func (c scriptsConn) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("eval")) {
		c.scripts.n.Add(1)
	}
	return c.Conn.Write(b)
}

// A lease is renewed in few requests while its slot moves: one to each of the two nodes,
// and again with the first key alone if other keys of the lock are not there.
func TestRequestsOfASlotThatMoves(t *testing.T) {
	t.Parallel()
	g := calm(clusterGroup)(t)
	var sent scripts
	rdb := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: g.cluster.Addrs(),
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return scriptsConn{c, &sent}, nil
		},
	})
	t.Cleanup(func() { rdb.Close() })
	b := closing(t, New(rdb, inOneSlot))
	alone, contended := hold(t, b, mutex("alone")), hold(t, b, mutex("contended"))
	waiter, other := wait_(t, b, mutex("contended")), hold(t, b, mutex("other"))
	move(t, g, int(hashSlot(inOneSlot.Prefix)), func(stage string) {
		for name, k := range map[string]driver.Ticket{"alone": alone, "contended": contended} {
			// The first time the node is told the script.
			for _, most := range []int64{8, 4} {
				before := sent.n.Load()
				steps.Well(t, stage+": Renew of "+name, renew(t, b, k))
				if n := sent.n.Load() - before; n > most {
					t.Errorf("%s: Renew of %q took %d requests, want at most %d", stage, name, n, most)
				}
			}
		}
		before := sent.n.Load()
		if err := errors.Join(b.Renew(t.Context(), []driver.Ticket{alone, contended, other})...); err != nil {
			t.Errorf("%s: Renew of many: %v", stage, err)
		}
		if n := sent.n.Load() - before; n > 12 {
			t.Errorf("%s: Renew of many took %d requests, want at most 12", stage, n)
		}
	})
	leave(t, b, other)
	leave(t, b, alone)
	leave(t, b, contended)
	granted(t, b, waiter)
	leave(t, b, waiter)
}

// A slot moves under load, slowly. Nobody loses a lock, and nobody gets one that another has.
func TestSlotMovesUnderLoad(t *testing.T) {
	t.Parallel()
	g := calm(clusterGroup)(t)
	const ttl = time.Minute
	l := startTraffic(t, g, ttl, []string{"a", "b", "c"}, inOneSlot)
	l.strict = true
	keeper, next := client(t, g, ttl, inOneSlot), client(t, g, ttl, inOneSlot)
	kept, contended := lock(t, keeper, "kept"), lock(t, keeper, "contended")
	got := make(chan error, 1)
	go func() {
		lease, err := next.Lock(context.Background(), "contended")
		if err == nil {
			err = lease.Release(context.Background())
		}
		got <- err
	}()
	eventually(t, "somebody waits", func() bool {
		l, err := keeper.Line(t.Context(), "contended")
		return err == nil && len(l.Claims) == 2
	})
	l.goesOn("the start")
	move(t, g, int(hashSlot(inOneSlot.Prefix)), func(stage string) {
		l.goesOn(stage)
		for _, lease := range []*fencelock.Lease{kept, contended} {
			steps.Well(t, stage+": Renew of "+lease.Key(), lease.Renew(t.Context()))
		}
	})
	l.goesOn("the move")
	for _, lease := range []*fencelock.Lease{kept, contended} {
		steps.Well(t, lease.Key()+", while its slot moved", lease.Release(t.Context()))
	}
	ok(t, <-got)
	if l.report(); l.lost > 0 {
		t.Errorf("%d holders lost their locks while the slot moved", l.lost)
	}
}
