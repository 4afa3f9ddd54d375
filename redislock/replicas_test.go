package redislock

import (
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/fence"
	"github.com/fencelock/fencelock/internal/testserver"
)

// cut breaks the link of a replica to its master, and keeps it broken: the replica
// knows what it knew, and can be promoted.
func cut(t testing.TB, replica *testserver.Server) {
	t.Helper()
	ask(t, replica, "CONFIG", "SET", "masterauth", "wrong")
	ask(t, replica, "CLIENT", "KILL", "TYPE", "master")
	linked(t, replica, "down")
}

func mend(t testing.TB, replica *testserver.Server) {
	t.Helper()
	ask(t, replica, "CONFIG", "SET", "masterauth", "")
	linked(t, replica, "up")
}

func linked(t testing.TB, replica *testserver.Server, status string) {
	t.Helper()
	eventually(t, "the link of the replica to its master is "+status, func() bool {
		info, err := replica.Ask("INFO", "replication")
		return err == nil && strings.Contains(info, "master_link_status:"+status)
	})
}

// A replica is promoted that has not heard of a grant, so a second holder comes beside the
// first. Its token is larger, so a resource that compares tokens refuses the first holder,
// whose next renewal reports the loss.
func TestStaleReplicaLetsASecondHolderInAndTheFirstIsTold(t *testing.T) {
	onEach(t, groups, func(t *testing.T, g *group) {
		const ttl = 6 * time.Minute // it is renewed by itself when all else is done
		a, b := client(t, g, ttl, nil), client(t, g, ttl, nil)
		m := g.master("key")
		for _, r := range g.replicas(m) {
			cut(t, r)
		}
		first := lock(t, a, "key")
		must(t, m.Kill())
		g.promoted("key", m)
		g.freeze()
		second := lock(t, b, "key")
		must(t, first.Err())
		steps.Rises(t, first.Token(), second.Token())
		var resource fence.Gate
		write := func() error { return nil }
		ok(t, resource.Do(t.Context(), second.Token(), write))
		steps.Is(t, "a write of the first holder", resource.Do(t.Context(), first.Token(), write), fence.ErrStale)
		// A client that has slept through the failover first tries the dead master.
		eventually(t, "the first holder is told by a renewal", func() bool {
			return errors.Is(first.Renew(t.Context()), fencelock.ErrLost)
		})
		<-first.Context().Done()
		steps.Is(t, "the first lease", first.Err(), fencelock.ErrLost)
		steps.Is(t, "Release of the lost lock", first.Release(t.Context()), fencelock.ErrLost)
		ok(t, second.Err())
		ok(t, second.Release(t.Context()))
		if l, err := b.Line(t.Context(), "key"); err != nil || len(l.Claims) > 0 {
			t.Errorf("the line is %+v, %v", l, err)
		}
	})
}

// confirmed are options that ask for the replicas of a group, which may take so long.
func confirmed(g *group, wait time.Duration) *Options {
	o := &Options{Replicas: 2, ReplicaWait: wait}
	if g.cluster != nil {
		o.Replicas = 1
	}
	return o
}

// With Replicas the schedule above does not get as far as a first holder.
func TestGrantThatReplicasDoNotConfirmIsTakenBack(t *testing.T) {
	onEach(t, groups, func(t *testing.T, g *group) {
		b, hasty := g.connect(confirmed(g, time.Minute)), confirmed(g, 200*time.Millisecond)
		held, marked := hold(t, b, mutex("key")), hold(t, b, mutex("key marked"))
		waiter := wait_(t, b, mutex("key"))
		must(t, renew(t, b, held))
		leave(t, b, held)
		granted(t, b, waiter)

		var links []*testserver.Server
		for _, key := range []string{"key", "key marked", "new", "core"} {
			links = append(links, g.replicas(g.master(key))[0])
		}
		for _, r := range links {
			cut(t, r)
		}
		b = g.connect(hasty)
		unknown := func(call string, err error) {
			if err == nil || permanent(err) || driver.Gone(err) || !strings.Contains(err.Error(), "replicas confirmed") {
				t.Errorf("%s answered %v, want that too few replicas confirmed it", call, err)
			}
		}
		_, err := b.Enter(t.Context(), mutex("new"))
		unknown("Enter of a free lock", err)
		_, err = b.Enter(t.Context(), mutex("key"))
		unknown("Enter behind a holder", err)
		inLine(t, "a grant that was refused leaves nothing", b, "new", 0)
		inLine(t, "a claim that was refused leaves nothing", b, "key", 1)
		_, err = b.Enter(t.Context(), noWait(mutex("key")))
		if busy := (*driver.BusyError)(nil); !errors.As(err, &busy) {
			t.Errorf("a try on a held lock answered %v; it has nothing to confirm", err)
		}
		unknown("Renew", renew(t, b, waiter))
		unknown("Leave with a mark", b.Leave(t.Context(), marked, driver.Exit{Mark: "m"}))

		_, err = client(t, g, time.Minute, hasty).Lock(t.Context(), "core", fencelock.Wait(time.Second))
		steps.Is(t, "Lock", err, fencelock.ErrUnavailable)

		for _, r := range links {
			mend(t, r)
		}
		b = g.connect(confirmed(g, time.Minute))
		// It was left the first time, and its mark is confirmed now.
		ok(t, b.Leave(t.Context(), marked, driver.Exit{Mark: "m"}))
		ok(t, renew(t, b, waiter))
		leave(t, b, waiter)
		leave(t, b, hold(t, b, mutex("new")))
	})
}

// What replicas have confirmed is there when one of them takes over, also a renewal.
func TestConfirmedGrantOutlivesItsMaster(t *testing.T) {
	onEach(t, groups, func(t *testing.T, g *group) {
		b := g.connect(confirmed(g, time.Minute))
		m := g.master("key")
		var held []driver.Ticket
		for range 20 {
			// As many as can be, right before the master dies: the last is on its way.
			held = append(held, enter(t, b, mutex("key")))
		}
		must(t, m.Kill())
		g.promoted("key", m)
		// The dead one is not there to confirm.
		r := g.connect(nil)
		eventually(t, "the new master answers", func() bool {
			_, err := r.Line(t.Context(), "key")
			return err == nil
		})
		if l := line(t, r, "key"); len(l.Claims) != len(held) {
			t.Errorf("of %d confirmed claims %d are left", len(held), len(l.Claims))
		}
		for _, k := range held {
			leave(t, r, k)
		}
	})
}

// WAIT goes with the command that it confirms: a free lock costs one request still. Tokens are not reserved: a replica
// that becomes the master may not know of those that were given.
func TestConfirmationCostsNoRequestOfItsOwn(t *testing.T) {
	t.Parallel()
	master, replica := newServer(t, testserver.Config("repl-diskless-sync no")), newServer(t)
	host, port, _ := net.SplitHostPort(master.Addr())
	ask(t, replica, "REPLICAOF", host, port)
	p := newProxy(t, master)
	b := patient(t, p.Addr(), &Options{Replicas: 1, ReplicaWait: time.Minute})
	eventually(t, "the replica confirms", func() bool {
		k, err := b.Enter(t.Context(), mutex("key"))
		return err == nil && renew(t, b, k) == nil && b.Leave(t.Context(), k, driver.Exit{}) == nil
	})
	var k driver.Ticket
	for _, call := range []func(){
		func() { k = hold(t, b, mutex("key")) },
		func() { ok(t, renew(t, b, k)) },
	} {
		p.Forget()
		call()
		if all, burst := p.names(); !slices.Equal(all, []string{"evalsha", "wait"}) || burst != 2 {
			t.Errorf("Enter or Renew sent %v, %d in one piece", all, burst)
		}
	}
	p.Forget()
	if done, err := b.Reserve(t.Context(), k, k.Span+1); done || err != nil {
		t.Errorf("Reserve answered %v, %v; want that it did nothing", done, err)
	}
	leave(t, b, k)
	if all, _ := p.names(); len(all) != 1 {
		t.Errorf("Leave sent %v", all)
	}
}
