package doctor_test

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/health"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/verify/natsserver"
)

func dialEtcd(t *testing.T, s *testserver.Server) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{s.Addr()}, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// The rights that package etcdlock asks for suffice.
func TestEtcdWithUsers(t *testing.T) {
	t.Parallel()
	s := testserver.Etcd(t, testserver.Config("--bcrypt-cost=4"))
	root, ctx := dialEtcd(t, s), t.Context()
	do := func(_ any, err error) { t.Helper(); must(t, err) }
	do(root.UserAdd(ctx, "root", "all"))
	do(root.UserGrantRole(ctx, "root", "root"))
	do(root.RoleAdd(ctx, "locks"))
	do(root.RoleGrantPermission(ctx, "locks", "fencelock/", "fencelock0", clientv3.PermissionType(clientv3.PermReadWrite)))
	do(root.UserAdd(ctx, "app", "own"))
	do(root.UserGrantRole(ctx, "app", "locks"))
	do(root.AuthEnable(ctx))
	finds(t, open(t, "etcd://app:own@"+s.Addr()).Backend, 30*time.Second, "note etcd-single")
}

// A server allows 60 connections from one host, which is the default, and this host has most of them.
func TestZooKeeperNearItsLimitOfConnections(t *testing.T) {
	t.Parallel()
	s := testserver.ZooKeeper(t, testserver.Config("maxClientCnxns=60"))
	b := open(t, s.URL()).Backend
	finds(t, b, 30*time.Second, "note zookeeper-single", "note zookeeper-connections")
	for range 48 {
		c, err := net.Dial("tcp", s.Addr())
		must(t, err)
		t.Cleanup(func() { c.Close() })
	}
	r := finds(t, b, 30*time.Second, "note zookeeper-single", "warning zookeeper-connections")
	if text := fmt.Sprint(r.Findings); !strings.Contains(text, "60, and this host has ") {
		t.Errorf("the finding does not say how many connections there are: %s", text)
	}
}

// stream connects to NATS as an operator.
func stream(t *testing.T, url string) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(url)
	must(t, err)
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	must(t, err)
	return js
}

// edit changes a stream as nats stream edit does.
func edit(t *testing.T, js jetstream.JetStream, name string, change func(c *jetstream.StreamConfig)) {
	t.Helper()
	s, err := js.Stream(t.Context(), name)
	must(t, err)
	c := s.CachedInfo().Config
	change(&c)
	_, err = js.UpdateStream(t.Context(), c)
	must(t, err)
}

func TestNATS(t *testing.T) {
	t.Parallel()
	feedsBack(t, "nats-limits", "nats-memory")
	s, err := natsserver.Start(t.TempDir())
	must(t, err)
	t.Cleanup(s.Stop)
	const ttl = 30 * time.Second
	finds(t, open(t, s.URL()+"/locks").Backend, ttl, "warning nats-sync")

	js := stream(t, s.URL())
	_, err = js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{
		Bucket: "short", TTL: time.Hour, Storage: jetstream.MemoryStorage,
	})
	must(t, err)
	short := func() driver.Backend { return open(t, s.URL()+"/short").Backend }
	finds(t, short(), ttl, "warning nats-sync", "warning nats-memory", "error nats-limits")
	byHand(t, "error nats-limits", "nats stream edit KV_short --max-age=0 --max-msgs=-1 --discard=new", ttl, short, func() {
		edit(t, js, "KV_short", func(c *jetstream.StreamConfig) {
			c.MaxAge, c.MaxMsgs, c.Discard = 0, -1, jetstream.DiscardNew
		})
	})
	byHand(t, "warning nats-memory", "nats stream rm KV_short", ttl, short, func() {
		must(t, js.DeleteStream(t.Context(), "KV_short"))
	})
}

func TestNATSCluster(t *testing.T) {
	t.Parallel()
	feedsBack(t, "nats-sync", "nats-election", "nats-replica")
	all, err := natsserver.Cluster(t.TempDir(), 3)
	var urls []string
	for _, s := range all {
		t.Cleanup(s.Stop)
		urls = append(urls, strings.TrimPrefix(s.URL(), "nats://"))
	}
	must(t, err)
	url := "nats://" + strings.Join(urls[:2], ",")
	js := stream(t, url)
	until(t, "the servers have elected a leader", func() bool {
		_, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "locks", Replicas: 1})
		return err == nil
	})
	locks := func() driver.Backend { return open(t, url+"/locks").Backend }
	byHand(t, "warning nats-sync", "nats stream edit KV_locks --replicas=3", time.Minute, locks, func() {
		edit(t, js, "KV_locks", func(c *jetstream.StreamConfig) { c.Replicas, c.Discard = 3, jetstream.DiscardNew })
	})
	store := locks()
	only := func(codes ...string) func() bool {
		return func() bool {
			r, err := store.(health.Examiner).Examine(t.Context(), time.Minute)
			if err != nil || len(r.Findings) != len(codes) {
				return false
			}
			return len(codes) == 0 || r.Findings[0].Code == codes[0]
		}
	}
	until(t, "the new replicas have all", only())
	finds(t, store, time.Minute)

	ttl := 5 * time.Second
	finds(t, store, ttl, "warning nats-election")
	left := followFrom(t, &ttl, locks, func(statements []string) error {
		return steps.ErrOf(longer(&ttl, statements[0]))
	})
	if len(left) > 0 {
		t.Errorf("these are left: %v", left)
	}

	all[2].Stop()
	until(t, "a replica is missed", only("nats-replica"))
	must(t, all[2].Start()) // as the finding says
	until(t, "the replica is back", only())
	feeds(t, "nats-replica")
}
