package redislock

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/redislock/internal/transport"
)

// All locks in one slot.
var (
	inOneSlot   = &Options{Prefix: "fencelock:{one}:"}
	inOtherSlot = &Options{Prefix: "fencelock:{other}:", Replicas: 1}
)

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
// others wait for; who comes second waits until the slot has arrived.
func TestLocksOfASlotThatMoves(t *testing.T) {
	t.Parallel()
	g := clusterGroup(t)
	t.Run("as it is", func(t *testing.T) { locksOfASlotThatMoves(t, g, inOneSlot) })
	t.Run("with replicas that confirm", func(t *testing.T) { locksOfASlotThatMoves(t, g, inOtherSlot) })
}

func locksOfASlotThatMoves(t *testing.T, g *group, o *Options) {
	b := g.connect(o)
	slot := int(hashSlot(b.recordName("any")))
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
			if l := line(t, b, key); len(l.Claims) != 1 {
				t.Errorf("%s: the line of a held lock is %+v", stage, l)
			}
			leave(t, b, k)
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
		if _, err := b.Enter(t.Context(), mutex("alone")); err == nil || permanent(err) || driver.Gone(err) {
			t.Errorf("%s: joining the line of a single holder answered %v, want that it is not known", stage, err)
		}
		if l := line(t, b, "alone"); len(l.Claims) != 1 {
			t.Errorf("%s: what was refused left %+v", stage, l)
		}
		// A line of several is all there, on either side.
		third := wait_(t, b, mutex("contended"))
		if err := renewOne(b, third); err != nil {
			t.Errorf("%s: Renew of one who joined: %v", stage, err)
		}
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
// and again with the record alone if other keys of the lock are not there.
func TestRequestsOfASlotThatMoves(t *testing.T) {
	t.Parallel()
	g := clusterGroup(t)
	var sent scripts
	rdb := clusterOver(t, g, func(c net.Conn, _ string) net.Conn { return scriptsConn{c, &sent} })
	b := closing(t, New(rdb, inOneSlot))
	alone, contended := hold(t, b, mutex("alone")), hold(t, b, mutex("contended"))
	waiter, other := wait_(t, b, mutex("contended")), hold(t, b, mutex("other"))
	move(t, g, int(hashSlot(inOneSlot.Prefix)), func(stage string) {
		for name, k := range map[string]driver.Ticket{"alone": alone, "contended": contended} {
			// The first time the node is told the script.
			for _, most := range []int64{8, 4} {
				before := sent.n.Load()
				if err := renewOne(b, k); err != nil {
					t.Errorf("%s: Renew of %q: %v", stage, name, err)
				}
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

// A slot moves under load, slowly: for longer than a lease. Nobody loses a lock, and
// nobody gets one that another has.
func TestSlotMovesUnderLoad(t *testing.T) {
	t.Parallel()
	g := clusterGroup(t)
	const ttl = 2 * time.Second
	var keys []string
	for i := range 3 {
		keys = append(keys, fmt.Sprint("key ", i))
	}
	l := startTraffic(t, g, ttl, keys, inOneSlot)
	l.strict = true
	keeper := client(t, g, ttl, inOneSlot)
	kept := lock(t, keeper, "kept")
	contended := lock(t, keeper, "contended")
	got := make(chan error, 1)
	next := client(t, g, ttl, inOneSlot)
	go func() {
		lease, err := next.Lock(context.Background(), "contended")
		if err == nil {
			err = lease.Release(context.Background())
		}
		got <- err
	}()
	eventually(t, "somebody waits", func() bool {
		l, err := keeper.Line(t.Context(), "contended")
		return err == nil && len(l.Claims()) == 2
	})
	l.goesOn("the start")
	place := hashSlot(inOneSlot.Prefix)
	slowest := g.slowest()
	for range 2 {
		began, served := time.Now(), l.served()
		move(t, g, int(place), func(string) {
			limbo := time.NewTimer(ttl * 3 / 4)
			<-limbo.C
		})
		t.Logf("the slot moved within %v; %d grants meanwhile", time.Since(began), l.served()-served)
		l.goesOn("the move")
	}
	// A lease is lost if it is not renewed in time, by four requests at most.
	late := slowest()
	for _, lease := range []*fencelock.Lease{kept, contended} {
		err := lease.Err()
		switch {
		case err != nil && 4*late > ttl/3:
			t.Logf("%q was lost while its slot moved: %v; the servers took up to %v for an answer", lease.Key(), err, late)
			_ = lease.Release(t.Context())
			continue
		case err != nil:
			t.Errorf("%q was lost while its slot moved: %v; the servers took at most %v for an answer", lease.Key(), err, late)
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Errorf("Release of %q: %v", lease.Key(), err)
		}
	}
	if err := <-got; err != nil && 4*late <= ttl/3 {
		t.Errorf("the waiter: %v; the servers took at most %v for an answer", err, late)
	}
	if l.lost > 0 && 4*late <= ttl/3 {
		t.Errorf("%d holders lost their locks while the slot moved; the servers took at most %v for an answer", l.lost, late)
	}
	l.report(2*ttl + 2*time.Second)
}

// The record alone is enough for a line of one, and nothing is done with it to a line
// of several, wherever their other keys are.
func TestRecordAloneServesALineOfOne(t *testing.T) {
	t.Parallel()
	_, b, _ := served(t)
	held := hold(t, b, mutex("key"))
	wait_(t, b, mutex("key"))
	before := line(t, b, "key")
	const key = "key"
	lease := string(appendLease(nil, time.Minute))
	c := mutex("key")
	alone := []any{b.recordName(key)}
	for i, st := range []*transport.Command{
		transport.NewCommand(enterScript, alone, encodeClaim(&c, ""), int64(90_000_000), "0"),
		transport.NewCommand(renewScript, alone, prefixed(held.ID), lease),
		transport.NewCommand(awaitScript, alone, prefixed(held.ID)),
		transport.NewCommand(linesScript, alone),
		transport.NewCommand(leaveScript, alone, prefixed(held.ID), b.callName()),
		transport.NewCommand(leaveScript, alone, prefixed(held.ID), b.callName(), "m", "0", "1000000"),
		transport.NewCommand(breakScript, alone, fmt.Sprintf("%019d", held.Token), "", b.callName(), "0"),
	} {
		if got := b.transport.Do(t.Context(), st); got.Err == nil || !strings.Contains(got.Err.Error(), "FENCELOCK MOVING") {
			t.Errorf("command %d on the record alone answered %+v", i, got)
		}
	}
	after := line(t, b, "key")
	for i := range after.Claims {
		after.Claims[i].Left = before.Claims[i].Left
	}
	if !reflect.DeepEqual(before, after) {
		t.Errorf("the line was %+v and is %+v", before, after)
	}
}
