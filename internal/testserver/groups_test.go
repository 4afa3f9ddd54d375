package testserver

import (
	"testing"
)

func TestSentinelsChooseAnotherMaster(t *testing.T) {
	t.Parallel()
	g := RedisSentinel(t, Password("pw"))
	first := g.Master()
	if first != g.Servers[0] {
		t.Fatalf("the first master is not the first server")
	}
	ask(t, first, "SET", "k", "v")
	check(t, g.Failover())
	second := g.Master()
	mustCome(t, "the old master follows the new one", g.Settled)
	if got := ask(t, second, "GET", "k"); got != "v" {
		t.Errorf("the new master has %q for k, want v", got)
	}
	check(t, second.Kill())
	mustCome(t, "a third master takes over from a dead one", func() bool {
		m := g.Master()
		return m != nil && m != second
	})
	check(t, second.Restart())
	mustCome(t, "the dead master is back as a replica", g.Settled)
	check(t, g.Sentinels[0].Restart())
	mustCome(t, "a sentinel that was started again still knows its master", g.Settled)
}

func TestClusterFailsOverAndMovesSlots(t *testing.T) {
	t.Parallel()
	g := RedisCluster(t, Password("pw"))
	slot := g.Slot("k")
	first := g.Master(slot)
	ask(t, first, "SET", "k", "v")
	second, err := g.Failover(first)
	check(t, err)
	mustCome(t, "the old master follows the new one", g.Settled)
	var other *Server
	for _, s := range g.Servers[:3] {
		if s != first {
			other = s
		}
	}
	m, err := g.BeginMove(slot, other)
	check(t, err)
	for {
		moved, err := m.Key()
		check(t, err)
		if !moved {
			break
		}
	}
	check(t, m.End())
	if got := ask(t, other, "GET", "k"); got != "v" {
		t.Errorf("the slot's new master has %q for k, want v", got)
	}
	if _, err := second.Ask("GET", "k"); err == nil {
		t.Error("the slot's old master still answers")
	}
	mustCome(t, "all know where the slot is", g.Settled)
	check(t, other.Kill())
	mustCome(t, "a replica takes over from the dead one", func() bool {
		m := g.Master(slot)
		return m != nil && m != other
	})
}
