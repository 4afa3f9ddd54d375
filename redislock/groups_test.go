package redislock

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/redis/go-redis/v9"
)

// group is several servers with one client, or a single one.
type group struct {
	t        testing.TB
	single   *testserver.Server
	sentinel *testserver.SentinelGroup
	cluster  *testserver.ClusterGroup
	claims   bool // may be left by a test
}

// groups are the ways to run several servers.
var groups = map[string]func(t testing.TB) *group{
	"sentinel": sentinelGroup,
	"cluster":  clusterGroup,
}

// stores are groups, and a server by itself, of which none fails.
var stores = map[string]func(t testing.TB) *group{
	"single":   singleServer,
	"sentinel": calm(sentinelGroup),
	"cluster":  calm(clusterGroup),
}

// calm starts a group that replaces none of its masters by itself.
func calm(start func(t testing.TB) *group) func(t testing.TB) *group {
	return func(t testing.TB) *group {
		g := start(t)
		g.freeze()
		return g
	}
}

// onEach runs f on each of them, side by side.
func onEach(t *testing.T, of map[string]func(t testing.TB) *group, f func(t *testing.T, g *group)) {
	t.Parallel()
	for name, start := range of {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, start(t))
		})
	}
}

// singleServer starts one server.
func singleServer(t testing.TB) *group {
	g := &group{t: t, single: testserver.Redis(t)}
	t.Cleanup(g.tidy)
	return g
}

// sentinelGroup starts a master with two replicas, and three sentinels.
func sentinelGroup(t testing.TB) *group {
	g := &group{t: t, sentinel: testserver.RedisSentinel(t)}
	t.Cleanup(g.tidy)
	return g
}

// clusterGroup starts three masters with a replica each.
func clusterGroup(t testing.TB) *group {
	g := &group{t: t, cluster: testserver.RedisCluster(t)}
	t.Cleanup(g.tidy)
	return g
}

// dial opens a client as a program would, with what it is made for.
func (g *group) dial() redis.UniversalClient { return dialFor(g.t, g) }

func (g *group) address() address {
	if g.single != nil {
		return address{Addrs: []string{g.single.Addr()}, Single: true}
	}
	if g.sentinel != nil {
		return address{Addrs: g.sentinel.Addrs(), Master: g.sentinel.Name}
	}
	return address{Addrs: g.cluster.Addrs()}
}

// address is what a client is told, also one in another process.
type address struct {
	Addrs  []string
	Single bool   // it is one server
	Master string // the name that sentinels know; empty for a Cluster
}

func (a address) dial() redis.UniversalClient {
	if a.Single {
		return redis.NewClient(&redis.Options{Addr: a.Addrs[0]})
	}
	if a.Master != "" {
		return redis.NewFailoverClient(&redis.FailoverOptions{MasterName: a.Master, SentinelAddrs: a.Addrs})
	}
	return redis.NewClusterClient(&redis.ClusterOptions{Addrs: a.Addrs})
}

func (g *group) connect(o *Options) *Backend {
	g.t.Helper()
	return closing(g.t, New(g.dial(), o))
}

func (g *group) servers() []*testserver.Server {
	if g.single != nil {
		return []*testserver.Server{g.single}
	}
	if g.sentinel != nil {
		return g.sentinel.Servers
	}
	return g.cluster.Servers
}

// master returns the server that has a key's lock just now.
func (g *group) master(key string) *testserver.Server {
	if g.single != nil {
		return g.single
	}
	if g.sentinel != nil {
		return g.sentinel.Master()
	}
	return g.cluster.Master(g.cluster.Slot(DefaultPrefix + "{" + keyEscaping.Escape(key) + "}"))
}

// replicas returns the servers that follow a master.
func (g *group) replicas(master *testserver.Server) []*testserver.Server {
	if g.cluster != nil {
		return []*testserver.Server{g.cluster.Replica(master)}
	}
	var others []*testserver.Server
	for _, s := range g.servers() {
		if s != master {
			others = append(others, s)
		}
	}
	return others
}

// handOver makes a replica take the place of a master that is well, and returns it.
func (g *group) handOver(master *testserver.Server) *testserver.Server {
	g.t.Helper()
	var now *testserver.Server
	var err error
	if g.sentinel != nil {
		err = g.sentinel.Failover()
		now = g.sentinel.Master()
	} else {
		now, err = g.cluster.Failover(master)
	}
	if err != nil {
		g.t.Fatal(err)
	}
	return now
}

// promoted waits until a replica has the place of a master of key.
func (g *group) promoted(key string, master *testserver.Server) {
	g.t.Helper()
	eventually(g.t, "another master has "+key, func() bool {
		now := g.master(key)
		return now != nil && now != master
	})
}

// failovers counts the promotions of replicas that this group has agreed on so far.
func (g *group) failovers() int {
	g.t.Helper()
	s, question, name := g.servers()[0], []string{"CLUSTER", "INFO"}, "cluster_current_epoch:"
	if g.sentinel != nil {
		s, question, name = g.sentinel.Sentinels[0], []string{"SENTINEL", "MASTER", g.sentinel.Name}, "config-epoch\n"
	}
	answer, err := s.Ask(question...)
	_, rest, ok := strings.Cut(answer, name)
	if err != nil || !ok {
		g.t.Fatalf("%v does not say how many failovers there were: %v, %q", question, err, answer)
	}
	var n int
	must(g.t, steps.ErrOf(fmt.Sscan(rest, &n)))
	return n
}

func (g *group) settled() bool {
	if g.sentinel != nil {
		return g.sentinel.Settled()
	}
	return g.cluster.Settled()
}

// freeze keeps a group from replacing a master for a minute: on a busy machine it may be silent for
// as long as counts as dead.
func (g *group) freeze() {
	g.t.Helper()
	if g.sentinel == nil {
		for _, s := range g.servers() {
			if s.Pid() != 0 {
				ask(g.t, s, "CONFIG", "SET", "cluster-node-timeout", "60000")
			}
		}
		return
	}
	for _, s := range g.sentinel.Sentinels {
		ask(g.t, s, "SENTINEL", "SET", g.sentinel.Name, "down-after-milliseconds", "60000")
	}
	eventually(g.t, "no sentinel takes the master for dead", func() bool {
		for _, s := range g.sentinel.Sentinels {
			seen, err := s.Ask("SENTINEL", "MASTER", g.sentinel.Name)
			if err != nil || !strings.Contains("\n"+seen+"\n", "\nflags\nmaster\n") {
				return false
			}
		}
		return g.sentinel.Master() != nil
	})
}

// tidy holds the group to having no client and no claim left. It runs when all clients are closed.
func (g *group) tidy() {
	g.t.Helper()
	for _, s := range g.servers() {
		if s.Pid() == 0 {
			continue
		}
		eventually(g.t, "no client is left at "+s.Addr(), func() bool {
			list, err := s.Ask("CLIENT", "LIST", "TYPE", "normal")
			for l := range strings.Lines(list) {
				if strings.Contains(l, "cmd=evalsha") || strings.Contains(l, "cmd=eval") {
					return false
				}
			}
			return err == nil
		})
	}
	if g.claims {
		return
	}
	rdb := g.address().dial()
	defer rdb.Close()
	for _, prefix := range []string{DefaultPrefix, inOneSlot.Prefix} {
		b := New(rdb, &Options{Prefix: prefix})
		eventually(g.t, "no claim is left under "+prefix, func() bool {
			for range b.Lines(context.Background(), "") {
				return false
			}
			return true
		})
		b.Close()
	}
}

// TestLawsOfGroups holds the backend to the laws on a Cluster of three masters and three
// replicas, and in make verify through Sentinel.
func TestLawsOfGroups(t *testing.T) {
	onEach(t, groupsWithLaws, func(t *testing.T, g *group) {
		g.claims = true // with leases of a minute
		laws(t, func(t *testing.T) driver.Backend { return closing(t, New(dialFor(t, g), nil)) })
	})
}

func dialFor(t testing.TB, g *group) redis.UniversalClient {
	c := g.address().dial()
	t.Cleanup(func() { c.Close() })
	return c
}

// A free lock costs one script and its release another, wherever its master is: counted by
// the servers.
func TestFreeLockOfStoresIsTwoRequests(t *testing.T) {
	onEach(t, stores, func(t *testing.T, g *group) {
		b := g.connect(nil)
		const pairs = 20
		locks := func() {
			for i := range pairs {
				leave(t, b, hold(t, b, mutex(fmt.Sprint("key ", i))))
			}
		}
		locks() // the connections, the scripts
		// A request that is late is sent again, so a machine that stands still may take more.
		eventually(t, fmt.Sprintf("%d locks and their releases take a request each", pairs), func() bool {
			for _, s := range g.servers() {
				ask(t, s, "CONFIG", "RESETSTAT")
			}
			locks()
			requests := 0
			for _, s := range g.servers() {
				requests += calls(t, s, "evalsha", "eval", "wait")
			}
			return requests == 2*pairs
		})
	})
}

// calls returns how often a server was given any of these commands.
func calls(t testing.TB, s *testserver.Server, commands ...string) int {
	t.Helper()
	n, err := s.Calls(commands...)
	must(t, err)
	return n
}

// A cluster client may be told to read from replicas. What it asks for a lock goes to
// masters all the same: a replica may know nothing of the last grant.
func TestClientThatReadsFromReplicasAsksMasters(t *testing.T) {
	t.Parallel()
	g := calm(clusterGroup)(t)
	// This is ReadOnly, too. RouteByLatency pings: go-redis 9.23 pings a new node while it still writes to it, which the
	// race detector finds now and then.
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: g.cluster.Addrs(), RouteRandomly: true})
	t.Cleanup(func() { rdb.Close() })
	b := closing(t, New(rdb, nil))
	for i := range 20 {
		key := fmt.Sprint("key ", i)
		held, waiter := hold(t, b, mutex(key)), wait_(t, b, mutex(key))
		must(t, renew(t, b, held))
		inLine(t, "of two", b, key, 2)
		leave(t, b, held)
		granted(t, b, waiter)
		leave(t, b, waiter)
	}
	for _, s := range g.servers()[3:] {
		stats, err := s.Ask("INFO", "commandstats")
		if err != nil || strings.Contains(stats, "cmdstat_eval") {
			t.Errorf("a replica was asked to run a script (%v):\n%s", err, stats)
		}
	}
}
