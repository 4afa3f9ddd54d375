package doctor_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testserver"
)

func TestZooKeeper(t *testing.T) {
	t.Parallel()
	s := testserver.ZooKeeper(t)
	r := finds(t, open(t, s.URL()).Backend, 30*time.Second, "note zookeeper-single")
	if r.Clock == nil || r.Failover != 0 {
		t.Errorf("the report is %+v", r)
	}
	down := freePort(t)
	finds(t, open(t, s.URL()+",127.0.0.1:"+down).Backend, 30*time.Second, "note zookeeper-single", "warning zookeeper-server-down")

	must(t, s.Restart(testserver.Config("maxSessionTimeout=15000", "4lw.commands.whitelist=srvr")))
	few := open(t, s.URL()).Backend
	finds(t, few, 30*time.Second, "note zookeeper-single", "note zookeeper-four-letters", "warning zookeeper-max-session")
	finds(t, few, 20*time.Second, "note zookeeper-single", "note zookeeper-four-letters", "note zookeeper-max-session")
	finds(t, few, 10*time.Second, "note zookeeper-single", "note zookeeper-four-letters")
}

// A server that is an ensemble by itself, with long ticks.
func TestZooKeeperWithLongTicks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, os.Mkdir(filepath.Join(dir, "data"), 0o700))
	must(t, os.WriteFile(filepath.Join(dir, "data", "myid"), []byte("1\n"), 0o600))
	s, err := testserver.StartZooKeeper(context.Background(), dir, testserver.Persist(true), testserver.Config(
		"tickTime=15000", "minSessionTimeout=60000", "standaloneEnabled=false",
		fmt.Sprintf("server.1=127.0.0.1:%s:%s:participant", freePort(t), freePort(t))))
	must(t, err)
	t.Cleanup(func() { _ = s.Stop() })
	b := open(t, s.URL()).Backend
	r := finds(t, b, 30*time.Second, "warning zookeeper-tick", "warning zookeeper-sync-limit", "warning zookeeper-min-session")
	steps.Same(t, "a failover takes", r.Failover, 151*time.Second)
	finds(t, b, 35*time.Second, "warning zookeeper-sync-limit", "warning zookeeper-min-session")
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
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
