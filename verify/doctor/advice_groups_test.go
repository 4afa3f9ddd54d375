package doctor_test

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/quorumlock"
)

func TestAdviceForARedisClusterCanBeFollowed(t *testing.T) {
	t.Parallel()
	feedsBack(t, "redis-node-timeout", "redis-cluster-node")
	g := testserver.RedisCluster(t, testserver.Persist(true))
	everywhere := ask(g.Servers...)
	must(t, everywhere([]string{
		"CONFIG SET maxmemory 100mb", "CONFIG SET maxmemory-policy volatile-ttl", "CONFIG SET appendonly no",
		"CONFIG SET cluster-node-timeout 15000", "CONFIG SET min-replicas-to-write 0",
		"ACL SETUSER locks on >p ~* &* +@all -info -config",
	}))
	_, err := g.Servers[1].Ask("ACL", "SETUSER", "locks", "-hdel") // at one node only
	must(t, err)
	ttl := 20 * time.Second
	url := "redis+cluster://locks:p@" + strings.Join(g.Addrs(), ",")
	left := followFrom(t, &ttl, func() driver.Backend { return open(t, url).Backend }, everywhere)
	if len(left) > 0 {
		t.Errorf("these are left: %v", left)
	}

	must(t, everywhere([]string{"CONFIG SET cluster-node-timeout 15000"}))
	r := finds(t, open(t, url).Backend, 30*time.Second)
	if r.Failover != 17*time.Second || r.Advice.Least < 28*time.Second || r.Clock == nil { // slow requests add to it
		t.Errorf("the report is %+v; want a failover of 17s, a least TTL of 28s or more, and a clock", r)
	}
	finds(t, open(t, url).Backend, 25*time.Second, "warning redis-node-timeout", "warning redis-node-timeout",
		"warning redis-node-timeout") // of each master

	// To whom names one node it says which URL to write.
	url = "redis://" + g.Addrs()[0]
	byHand(t, "error redis-cluster-node", "use redis+cluster:// in the URL", time.Minute, func() driver.Backend {
		return open(t, url).Backend
	}, func() { url = strings.Replace(url, "redis://", "redis+cluster://", 1) })
}

// memberOn starts a Redis server on a host of its own, 127.0.0.n.
func memberOn(t *testing.T, n int) (*testserver.Server, string) {
	t.Helper()
	host := fmt.Sprintf("127.0.0.%d", n)
	s := testserver.Redis(t, testserver.Persist(true), testserver.Config("bind 127.0.0.1 "+host, "repl-diskless-sync-delay 0"))
	_, port, _ := net.SplitHostPort(s.Addr())
	return s, net.JoinHostPort(host, port)
}

// members starts three of them.
func members(t *testing.T) (servers []*testserver.Server, addrs []string) {
	t.Helper()
	for i := range 3 {
		s, addr := memberOn(t, i+2)
		servers, addrs = append(servers, s), append(addrs, addr)
	}
	return servers, addrs
}

func TestAdviceForAQuorumCanBeFollowed(t *testing.T) {
	t.Parallel()
	feedsBack(t, "quorum-volatile", "redis-not-durable", "lock-refused")
	servers, addrs := members(t)
	everywhere := ask(servers...)
	quorum := func(query string) *quorumlock.Backend {
		return open(t, "redlock://"+strings.Join(addrs, ",")+query).Backend.(*quorumlock.Backend)
	}
	must(t, everywhere([]string{
		"CONFIG SET maxmemory 100mb", "CONFIG SET maxmemory-policy volatile-ttl", "CONFIG SET appendonly no",
	}))
	r := finds(t, quorum(""), time.Minute, "error lock-refused", "error redis-eviction", "error redis-eviction",
		"error redis-eviction", "warning quorum-volatile")
	for _, part := range append(addrs, "fencelock init") {
		if text := fmt.Sprintf("%+v", r.Findings); !strings.Contains(text, part) {
			t.Errorf("before init %q is not in %s", part, text)
		}
	}
	byHand(t, "error lock-refused", "do what the message says", time.Minute, func() driver.Backend { return quorum("") }, func() {
		must(t, quorum("").Initialise(t.Context())) // fencelock init
	})
	if left := follow(t, func() driver.Backend { return quorum("") }, everywhere); len(left) > 0 {
		t.Errorf("these are left: %v", left)
	}
	must(t, quorum("?durable=true").ChangeMembership(t.Context())) // fencelock init --change
	if left := follow(t, func() driver.Backend { return quorum("?durable=true") }, everywhere); len(left) > 0 {
		t.Errorf("these are left of durable members: %v", left)
	}
	must(t, everywhere([]string{"CONFIG SET appendfsync everysec"}))
	if left := follow(t, func() driver.Backend { return quorum("?durable=true") }, everywhere); len(left) > 0 {
		t.Errorf("these are left of members that are to be durable: %v", left)
	}
}

// TestReplicaOfAMemberOfAQuorum: somebody gave a durable member a replica, to be safe.
func TestReplicaOfAMemberOfAQuorum(t *testing.T) {
	t.Parallel()
	feedsBack(t, "redis-member-replicas")
	servers, addrs := members(t)
	quorum := func() driver.Backend {
		return open(t, "redlock://"+strings.Join(addrs, ",")+"?durable=true").Backend
	}
	must(t, quorum().(*quorumlock.Backend).Initialise(t.Context()))
	replica := testserver.Redis(t)
	must(t, replica.Follow(servers[1].Addr()))
	finds(t, quorum(), time.Minute, "warning redis-member-replicas")
	byHand(t, "warning redis-member-replicas", "REPLICAOF NO ONE", time.Minute, quorum, func() {
		_, err := replica.Ask("REPLICAOF", "NO", "ONE")
		must(t, err)
	})
}
