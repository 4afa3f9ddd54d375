//go:build verify

package doctor_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/driver/health"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testserver"
)

func TestAdviceForZooKeeperCanBeFollowed(t *testing.T) {
	t.Parallel()
	feedsBack(t, "zookeeper-min-session", "zookeeper-max-session", "zookeeper-tick", "zookeeper-sync-limit",
		"zookeeper-four-letters", "zookeeper-connections")
	dir := t.TempDir()
	must(t, os.Mkdir(filepath.Join(dir, "data"), 0o700))
	must(t, os.WriteFile(filepath.Join(dir, "data", "myid"), []byte("1\n"), 0o600))
	ports, err := testserver.Ports(2)
	must(t, err)
	s, err := testserver.StartZooKeeper(context.Background(), dir, testserver.Persist(true), testserver.Config(
		"tickTime=15000", "minSessionTimeout=60000", "maxSessionTimeout=60000", "standaloneEnabled=false", "maxClientCnxns=12",
		fmt.Sprintf("server.1=127.0.0.1:%d:%d:participant", ports[0], ports[1])))
	must(t, err)
	t.Cleanup(func() { _ = s.Stop() })
	ttl := 20 * time.Second
	zooCfg := func(statements []string) error {
		for _, text := range statements {
			if followed, err := longer(&ttl, text); followed || err != nil {
				return err
			}
			if err := s.Restart(testserver.Config(strings.TrimSuffix(text, " in zoo.cfg"))); err != nil {
				return err
			}
		}
		return nil
	}
	others := func() driver.Backend { // and other programs of the host
		for range 10 {
			c, err := net.Dial("tcp", s.Addr())
			must(t, err)
			t.Cleanup(func() { c.Close() })
		}
		return open(t, s.URL()).Backend
	}
	r := finds(t, open(t, s.URL()).Backend, 30*time.Second, "warning zookeeper-tick", "warning zookeeper-sync-limit",
		"warning zookeeper-min-session", "note zookeeper-connections")
	steps.Same(t, "a failover takes", r.Failover, 151*time.Second)
	must(t, s.Restart()) // without the connections of this check
	left := followFrom(t, &ttl, others, zooCfg)
	if got := codes(left); got != "zookeeper-connections" || left[0].Severity != health.Note {
		t.Errorf("these are left: %v", left)
	}
	must(t, s.Restart(testserver.Config("minSessionTimeout=400", "maxSessionTimeout=15000", "4lw.commands.whitelist=srvr")))
	here := func() driver.Backend { return open(t, s.URL()).Backend }
	for ttl, severity := range map[time.Duration]string{30 * time.Second: "warning", 20 * time.Second: "note"} {
		finds(t, here(), ttl, severity+" zookeeper-max-session", "note zookeeper-four-letters")
	}
	left = followFrom(t, &ttl, here, zooCfg)
	if got := codes(left); got != "zookeeper-connections" {
		t.Errorf("these are left: %v", left)
	}
}

// A server that is down is started, or taken out of the URL; a server alone becomes an ensemble.
func TestAdviceForServersOfAnEnsembleCanBeFollowed(t *testing.T) {
	t.Parallel()
	feedsBack(t, "zookeeper-server-down", "zookeeper-single")
	var all []string
	servers := testserver.ZooKeeperEnsemble(t, 3)
	for _, s := range servers {
		all = append(all, s.Addr())
	}
	url := testserver.ZooKeeper(t).URL()
	at := func() driver.Backend { return open(t, url).Backend }
	byHand(t, "note zookeeper-single", "name all of them: zk://host1:2181,host2:2181,host3:2181", 30*time.Second, at, func() {
		url = "zk://" + strings.Join(all, ",")
	})
	must(t, servers[0].Kill())
	byHand(t, "warning zookeeper-server-down", "take it out of the URL", 30*time.Second, at, func() {
		url = "zk://" + strings.Join(all[1:], ",")
	})
	url = "zk://" + strings.Join(all, ",")
	byHand(t, "warning zookeeper-server-down", "start the server", 30*time.Second, at, func() { must(t, servers[0].Restart()) })
}

func TestAdviceForEtcdCanBeFollowed(t *testing.T) {
	t.Parallel()
	feedsBack(t, "etcd-compaction", "etcd-quota", "etcd-alarm")
	const quota = 16 << 20
	settings := testserver.Config(fmt.Sprintf("--quota-backend-bytes=%d", quota), "--backend-batch-interval=1ms")
	fill := func(s *testserver.Server, enough func(*clientv3.StatusResponse, error) bool) {
		c := dialEtcd(t, s)
		until(t, "the store fills up", func() bool {
			_, err := c.Put(t.Context(), "large", strings.Repeat("x", 256<<10))
			status, _ := c.Status(t.Context(), s.Addr())
			return enough(status, err)
		})
	}
	nearly := func(s *clientv3.StatusResponse, err error) bool {
		must(t, err)
		return s.DbSize > quota/10*8
	}
	followed := func(s *testserver.Server, ttl time.Duration, want ...string) {
		t.Helper()
		finds(t, open(t, s.URL()).Backend, time.Minute, append(want, "note etcd-single")...)
		left := followFrom(t, &ttl, func() driver.Backend { return open(t, s.URL()).Backend }, func(statements []string) error {
			if followed, err := longer(&ttl, statements[0]); followed {
				return err
			}
			return etcdctl(t, s, statements)
		})
		if got := codes(left); got != "etcd-single" {
			t.Errorf("these are left: %v", left)
		}
	}
	s := testserver.Etcd(t, testserver.Persist(true), settings)
	manySteps(t, dialEtcd(t, s))
	followed(s, time.Second, "warning etcd-compaction")
	fill(s, nearly)
	followed(s, time.Minute, "warning etcd-quota")
	fill(s, func(_ *clientv3.StatusResponse, err error) bool { return err != nil })
	followed(s, time.Minute, "error etcd-alarm", "error lock-refused")

	// It was never compacted, and is nearly full: what is to be done can be done once.
	s = testserver.Etcd(t, testserver.Persist(true), settings)
	manySteps(t, dialEtcd(t, s))
	fill(s, nearly)
	followed(s, time.Minute, "warning etcd-quota")
}

// manySteps makes more revisions than doctor lets pass without a compaction.
func manySteps(t *testing.T, c *clientv3.Client) {
	var writers sync.WaitGroup
	for range 20 {
		writers.Go(func() {
			for range 260 {
				if _, err := c.Put(t.Context(), "key", "value"); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	writers.Wait()
}

// etcdctl does what etcdctl does.
func etcdctl(t *testing.T, s *testserver.Server, statements []string) error {
	c := dialEtcd(t, s)
	defer c.Close()
	for _, text := range statements {
		var err error
		switch f := strings.Fields(text); {
		case strings.HasPrefix(text, "etcdctl compact "):
			var revision int64
			if revision, err = strconv.ParseInt(f[2], 10, 64); err == nil {
				_, err = c.Compact(t.Context(), revision, clientv3.WithCompactPhysical())
			}
		case text == "etcdctl defrag --cluster":
			_, err = c.Defragment(t.Context(), s.Addr())
		case strings.HasPrefix(text, "etcdctl member remove "):
			var id uint64
			if id, err = strconv.ParseUint(f[3], 16, 64); err == nil {
				_, err = c.MemberRemove(t.Context(), id)
			}
		case strings.HasPrefix(text, "etcdctl member add "):
			_, err = c.MemberAdd(t.Context(), strings.Split(strings.TrimPrefix(f[4], "--peer-urls="), ","))
		case text == "etcdctl alarm disarm":
			_, err = c.AlarmDisarm(t.Context(), &clientv3.AlarmMember{})
		case strings.HasPrefix(text, "start the servers with --"):
			err = s.Restart(testserver.Config(f[4:]...))
		default:
			err = fmt.Errorf("there is no such command: %q", text)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", text, err)
		}
	}
	return nil
}

func TestAdviceForMembersOfEtcdCanBeFollowed(t *testing.T) {
	t.Parallel()
	feedsBack(t, "etcd-election-timeout", "etcd-member-down", "etcd-single", "etcd-alarm")
	members := testserver.EtcdCluster(t, 3)
	var all []string
	for _, m := range members {
		all = append(all, m.Addr())
	}
	ttl := 2 * time.Second
	url := "etcd://" + strings.Join(all, ",")
	r := finds(t, open(t, url).Backend, 3*time.Second, "warning etcd-election-timeout")
	if r.Failover < time.Second || r.Failover > 3*time.Second || r.Clock != nil {
		t.Errorf("the report is %+v", r)
	}
	left := followFrom(t, &ttl, func() driver.Backend { return open(t, url).Backend }, func(statements []string) error {
		_, err := longer(&ttl, statements[0])
		return err
	})
	if len(left) > 0 {
		t.Errorf("these are left: %v", left)
	}
	must(t, members[2].Kill())
	until(t, "the others go on", func() bool {
		_, err := dialEtcd(t, members[0]).Get(steps.Soon(t), "key")
		return err == nil
	})
	whole := url
	at := func() driver.Backend { return open(t, url).Backend }
	down := byHand(t, "warning etcd-member-down", "take its endpoint out of the URL", time.Minute, at, func() {
		url = "etcd://" + strings.Join(all[:2], ",")
	})
	if !strings.Contains(down.Server, members[2].Addr()) {
		t.Errorf("it is said of %s", down.Server)
	}
	back := func() {
		until(t, "the member is back", func() bool {
			_, err := dialEtcd(t, members[2]).Get(t.Context(), "key")
			return err == nil
		})
	}
	url = whole
	byHand(t, "warning etcd-member-down", "start the member", time.Minute, at, func() {
		must(t, members[2].Restart())
		back()
	})

	// The members find out that one of them has other data than the others.
	c := dialEtcd(t, members[0])
	status, err := c.Status(t.Context(), members[2].Addr())
	must(t, err)
	_, err = pb.NewMaintenanceClient(c.ActiveConnection()).Alarm(t.Context(), &pb.AlarmRequest{
		Action: pb.AlarmRequest_ACTIVATE, MemberID: status.Header.MemberId, Alarm: pb.AlarmType_CORRUPT,
	})
	must(t, err)
	var remedy []string
	for _, f := range check(t, at(), time.Minute).Findings {
		if f.Code == "etcd-alarm" {
			remedy = strings.Split(f.Remedy, ", then ")
		}
	}
	byHand(t, "error etcd-alarm", "etcdctl member remove", time.Minute, at, func() {
		for _, text := range remedy {
			if text != "start member2 with an empty --data-dir and --initial-cluster-state=existing" {
				until(t, "etcd follows "+text, func() bool { // a member that is just back counts as away for 5 s
					return etcdctl(t, members[0], []string{text}) == nil
				})
				continue
			}
			must(t, members[2].Stop())
			must(t, os.RemoveAll(filepath.Join(members[2].Dir(), "data")))
			must(t, members[2].Restart(testserver.Config("--initial-cluster-state=existing")))
		}
		back()
	})

	single := testserver.Etcd(t).URL()
	byHand(t, "note etcd-single", "name all of them: etcd://host1:2379,host2:2379,host3:2379", time.Minute,
		func() driver.Backend { return open(t, single).Backend }, func() { single = whole })
}
