package doctor_test

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/doctor"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/quorumlock"
)

var until = steps.Eventually

func config(t *testing.T, s *testserver.Server, pairs ...string) {
	t.Helper()
	for _, pair := range pairs {
		name, value, _ := strings.Cut(pair, " ")
		_, err := s.Ask("CONFIG", "SET", name, value)
		must(t, err)
	}
}

func TestRedis(t *testing.T) {
	t.Parallel()
	quick := []testserver.Option{testserver.Persist(true), testserver.Config("repl-diskless-sync-delay 0")}
	master, replica := testserver.Redis(t, quick...), testserver.Redis(t, quick...)
	b := open(t, master.URL()).Backend
	finds(t, b, time.Minute)

	host, port, _ := net.SplitHostPort(master.Addr())
	_, err := replica.Ask("REPLICAOF", host, port)
	must(t, err)
	until(t, "the replica follows", func() bool {
		info, err := master.Ask("INFO", "replication")
		return err == nil && strings.Contains(info, "state=online")
	})
	config(t, master, "maxmemory 100mb", "maxmemory-policy volatile-ttl", "appendfsync no")
	finds(t, b, time.Minute, "error redis-eviction", "warning redis-fsync", "warning redis-min-replicas")
	config(t, master, "maxmemory-policy noeviction", "appendfsync everysec", "min-replicas-to-write 1")
	finds(t, b, time.Minute, "note redis-fsync")
	config(t, master, "appendonly no")
	finds(t, b, time.Minute, "warning redis-no-persistence")
	finds(t, open(t, replica.URL()).Backend, time.Minute, "error redis-replica", "error lock-refused")

	_, err = master.Ask("ACL", "SETUSER", "locks", "on", ">p", "~*", "&*", "+@all", "-info", "-config", "-zadd")
	must(t, err)
	url := strings.Replace(master.URL(), "redis://", "redis://locks:p@", 1)
	finds(t, open(t, url).Backend, time.Minute,
		"note redis-unreadable", "note redis-unreadable", "error redis-rights") // a lock that nobody else wants needs no ZADD
}

func TestRedisCluster(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t, testserver.Persist(true), testserver.Config("cluster-enabled yes"))
	_, err := s.Ask(testserver.AddSlots(0, 16384)...)
	must(t, err)
	until(t, "the cluster is well", func() bool {
		info, err := s.Ask("CLUSTER", "INFO")
		return err == nil && strings.Contains(info, "cluster_state:ok")
	})
	b := open(t, "redis+cluster://"+s.Addr()).Backend
	r := finds(t, b, 30*time.Second)
	if r.Failover != 17*time.Second || r.Advice.Least < 28*time.Second || r.Clock == nil { // slow requests add to it
		t.Errorf("the report is %+v; want a failover of 17s, a least TTL of 28s or more, and a clock", r)
	}
	finds(t, b, 25*time.Second, "warning redis-node-timeout")
}

func TestSentinel(t *testing.T) {
	t.Parallel()
	g := testserver.RedisSentinel(t, testserver.Config("min-replicas-to-write 1"))
	var addrs []string
	for _, s := range g.Sentinels {
		addrs = append(addrs, s.Addr())
		_, err := s.Ask("SENTINEL", "SET", g.Name, "down-after-milliseconds", "30000")
		must(t, err)
	}
	s := open(t, "redis+sentinel://"+strings.Join(addrs, ",")+"/"+g.Name+"/0")
	failover := s.Failover(t.Context())
	if failover != 32*time.Second {
		t.Errorf("a failover takes %v", failover)
	}
	r, err := doctor.Check(t.Context(), s.Backend, &doctor.Options{Failover: failover, Requests: 20, For: 100 * time.Millisecond})
	must(t, err)
	// Slow requests add to the advice.
	if text := fmt.Sprint(r.Findings); !strings.Contains(text, "failover-time") || r.Advice.TTL < 50*time.Second {
		t.Errorf("the report is %+v; want failover-time, and a TTL that outlives a failover of %v", r, failover)
	}
}

// redlock starts three servers on hosts of their own, as far as one machine has such, and
// returns the quorum at these hosts.
func redlock(t *testing.T, hosts [3]string, opts ...testserver.Option) *quorumlock.Backend {
	t.Helper()
	var addrs []string
	for _, host := range hosts {
		bind := "bind 127.0.0.1"
		if host != "127.0.0.1" {
			bind += " " + host
		}
		s := testserver.Redis(t, append(opts, testserver.Config(bind))...)
		_, port, _ := net.SplitHostPort(s.Addr())
		addrs = append(addrs, net.JoinHostPort(host, port))
	}
	q := open(t, "redlock://"+strings.Join(addrs, ",")).Backend.(*quorumlock.Backend)
	must(t, q.Initialise(t.Context()))
	return q
}

func TestQuorum(t *testing.T) {
	t.Parallel()
	finds(t, redlock(t, [3]string{"127.0.0.2", "127.0.0.3", "127.0.0.4"}, testserver.Persist(true)), time.Minute)

	q := redlock(t, [3]string{"127.0.0.1", "127.0.0.2", "127.0.0.1"})
	r := finds(t, q, time.Minute, "warning quorum-shared-host", "warning quorum-volatile")
	if text := fmt.Sprint(r.Findings); !strings.Contains(text, "127.0.0.1 has node 1") || !strings.Contains(text, "node 3") {
		t.Errorf("the members are not named: %s", text)
	}
}

func TestQuorumWithAMemberThatIsDown(t *testing.T) {
	t.Parallel()
	var addrs []string
	servers := make([]*testserver.Server, 3)
	for i := range servers {
		servers[i] = testserver.Redis(t, testserver.Persist(true))
		addrs = append(addrs, servers[i].Addr())
	}
	q := open(t, "redlock://"+strings.Join(addrs, ",")).Backend.(*quorumlock.Backend)
	must(t, q.Initialise(t.Context()))
	config(t, servers[0], "maxmemory 100mb", "maxmemory-policy allkeys-lru")
	must(t, servers[2].Kill())
	r := finds(t, q, time.Minute, "error redis-eviction", "warning quorum-member-down", "warning quorum-shared-host")
	if f := r.Findings[0]; !strings.Contains(f.Server, servers[0].Addr()) {
		t.Errorf("the first finding is of %q", f.Server)
	}
}

// TestRedisWithARenamedCommand: an administrator has taken CONFIG away from everybody. No right gives it back.
func TestRedisWithARenamedCommand(t *testing.T) {
	t.Parallel()
	always := testserver.Config("appendfsync always")
	s := testserver.Redis(t, testserver.Persist(true), always, testserver.Config(`rename-command CONFIG ""`))
	byHand(t, "redis-unreadable", "remove rename-command CONFIG from redis.conf", time.Minute, func() driver.Backend {
		return open(t, s.URL()).Backend
	}, func() { s = testserver.Redis(t, testserver.Persist(true), always) })
}
