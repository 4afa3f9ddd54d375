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
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testserver"
)

// longer follows "a TTL of … or more".
func longer(ttl *time.Duration, statement string) (followed bool, err error) {
	text, found := strings.CutPrefix(statement, "a TTL of ")
	if !found {
		return false, nil
	}
	*ttl, err = time.ParseDuration(strings.TrimSuffix(text, " or more"))
	return true, err
}

func TestAdviceForZooKeeperCanBeFollowed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, os.Mkdir(filepath.Join(dir, "data"), 0o700))
	must(t, os.WriteFile(filepath.Join(dir, "data", "myid"), []byte("1\n"), 0o600))
	s, err := testserver.StartZooKeeper(context.Background(), dir, testserver.Persist(true), testserver.Config(
		"tickTime=15000", "minSessionTimeout=60000", "maxSessionTimeout=60000", "standaloneEnabled=false", "maxClientCnxns=12",
		fmt.Sprintf("server.1=127.0.0.1:%s:%s:participant", freePort(t), freePort(t))))
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
	left := followFrom(t, &ttl, others, zooCfg)
	if got := codes(left); got != "zookeeper-connections" || left[0].Severity != driver.SeverityNote {
		t.Errorf("these are left: %v", left)
	}
	must(t, s.Restart(testserver.Config("minSessionTimeout=400", "maxSessionTimeout=15000", "4lw.commands.whitelist=srvr")))
	left = followFrom(t, &ttl, func() driver.Backend { return open(t, s.URL()).Backend }, zooCfg)
	if got := codes(left); got != "zookeeper-connections" {
		t.Errorf("these are left: %v", left)
	}
}

// A server that is down is started, or taken out of the URL; a server alone becomes an ensemble.
func TestAdviceForServersOfAnEnsembleCanBeFollowed(t *testing.T) {
	t.Parallel()
	var all []string
	servers := testserver.ZooKeeperEnsemble(t, 3)
	for _, s := range servers {
		all = append(all, s.Addr())
	}
	must(t, servers[0].Kill())
	url := "zk://" + strings.Join(all, ",")
	finds(t, open(t, url).Backend, 30*time.Second, "warning zookeeper-server-down")
	finds(t, open(t, "zk://"+strings.Join(all[1:], ",")).Backend, 30*time.Second)
	must(t, servers[0].Restart())
	finds(t, open(t, url).Backend, 30*time.Second)
}

func TestAdviceForEtcdCanBeFollowed(t *testing.T) {
	t.Parallel()
	const quota = 16 << 20
	s := testserver.Etcd(t, testserver.Persist(true), testserver.Config(
		fmt.Sprintf("--quota-backend-bytes=%d", quota), "--backend-batch-interval=1ms"))
	large := strings.Repeat("x", 256<<10)
	c := dialEtcd(t, s)
	fill := func(enough func(*clientv3.StatusResponse, error) bool) {
		until(t, "the store fills up", func() bool {
			_, err := c.Put(t.Context(), "large", large)
			status, _ := c.Status(t.Context(), s.Addr())
			return enough(status, err)
		})
	}
	fill(func(s *clientv3.StatusResponse, err error) bool {
		must(t, err)
		return s.Header.Revision > 5000 || s.DbSize > quota/10*8
	})
	ctl := func(statements []string) error { return etcdctl(t, s, statements) }
	ttl := time.Second
	left := followFrom(t, &ttl, func() driver.Backend { return open(t, s.URL()).Backend }, func(statements []string) error {
		if followed, err := longer(&ttl, statements[0]); followed {
			return err
		}
		return ctl(statements)
	})
	if got := codes(left); got != "etcd-single" {
		t.Errorf("these are left: %v", left)
	}
	c = dialEtcd(t, s)
	fill(func(_ *clientv3.StatusResponse, err error) bool { return err != nil })
	left = follow(t, func() driver.Backend { return open(t, s.URL()).Backend }, ctl)
	if got := codes(left); got != "etcd-single" {
		t.Errorf("these are left of a full server: %v", left)
	}
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
	members := testserver.EtcdCluster(t, 3)
	var all []string
	for _, m := range members {
		all = append(all, m.Addr())
	}
	ttl := 2 * time.Second
	url := "etcd://" + strings.Join(all, ",")
	left := followFrom(t, &ttl, func() driver.Backend { return open(t, url).Backend }, func(statements []string) error {
		_, err := longer(&ttl, statements[0])
		return err
	})
	if len(left) > 0 {
		t.Errorf("these are left: %v", left)
	}
	must(t, members[2].Kill())
	until(t, "the others go on", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := dialEtcd(t, members[0]).Get(ctx, "key")
		return err == nil
	})
	finds(t, open(t, url).Backend, time.Minute, "warning etcd-member-down")
	finds(t, open(t, "etcd://"+strings.Join(all[:2], ",")).Backend, time.Minute)
	must(t, members[2].Restart())
	until(t, "the member is back", func() bool {
		_, err := dialEtcd(t, members[2]).Get(t.Context(), "key")
		return err == nil
	})
	finds(t, open(t, url).Backend, time.Minute)
}
