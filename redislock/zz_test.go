package redislock

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/redis/go-redis/v9"
)

func TestZZ(t *testing.T) {
	var nodes []*testserver.Server
	ranges := [][2]string{{"0", "5460"}, {"5461", "10922"}, {"10923", "16383"}}
	for i := range 3 {
		s := testserver.Redis(t, testserver.Config("cluster-enabled yes", "cluster-config-file nodes.conf", "cluster-node-timeout 60000", "cluster-require-full-coverage no"))
		if _, err := s.Ask("CLUSTER", "ADDSLOTSRANGE", ranges[i][0], ranges[i][1]); err != nil {
			t.Fatal(err)
		}
		nodes = append(nodes, s)
	}
	h, p, _ := net.SplitHostPort(nodes[0].Addr())
	for _, s := range nodes[1:] {
		if _, err := s.Ask("CLUSTER", "MEET", h, p); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range nodes {
		eventually(t, "ok", func() bool {
			info, _ := s.Ask("CLUSTER", "INFO")
			return strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_slots_assigned:16384")
		})
	}
	open := func(t *testing.T) driver.Backend {
		var addrs []string
		for _, s := range nodes {
			addrs = append(addrs, s.Addr())
		}
		c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
		t.Cleanup(func() { c.Close() })
		return closing(t, New(c, nil))
	}
	t.Run("laws", func(t *testing.T) { drivertest.Run(t, open, drivertest.ExpiryLag(50*time.Millisecond)); drivertest.Model(t, open) })
	// one node hangs: others go on
	b := open(t).(*Backend)
	var ks []driver.Ticket
	for i := range 60 {
		ks = append(ks, hold(t, b, mutex(fmt.Sprint("k", i))))
	}
	nodes[2].Pause()
	bad := func(key string) bool { return slot(b.record(key)) >= 10923 }
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	start := time.Now()
	errs := b.Renew(ctx, ks)
	for i, e := range errs {
		if (e != nil) != bad(ks[i].Key) {
			t.Error(ks[i].Key, e)
		}
	}
	t.Log("renew", time.Since(start))
	cancel()
	for i := range 60 {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		start := time.Now()
		_, err := b.Enter(ctx, mutex(fmt.Sprint("n", i)))
		d := time.Since(start)
		cancel()
		if bad(fmt.Sprint("n", i)) != (err != nil) || d > 50*time.Millisecond {
			t.Error(i, d, err)
		}
	}
	t.Log("lanes", len(b.sender.lanes))
	nodes[2].Continue()
}
