package doctor_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/fencelock/fencelock/internal/testserver"
)

func dialEtcd(t *testing.T, s *testserver.Server) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{s.Addr()}, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestEtcd(t *testing.T) {
	t.Parallel()
	const quota = 16 << 20
	s := testserver.Etcd(t, testserver.Config(
		fmt.Sprintf("--quota-backend-bytes=%d", quota), "--backend-batch-interval=1ms")) // or the size is known late
	b := open(t, s.URL()).Backend
	finds(t, b, 30*time.Second, "note etcd-single")

	c := dialEtcd(t, s)
	manySteps(t, c)
	finds(t, b, 30*time.Second, "note etcd-single", "warning etcd-compaction")
	_, err := c.Compact(t.Context(), 2000)
	must(t, err)
	finds(t, b, 30*time.Second, "note etcd-single")

	large := strings.Repeat("x", 256<<10)
	for {
		status, err := c.Status(t.Context(), s.Addr())
		must(t, err)
		if status.DbSize > quota/10*8 {
			break
		}
		_, err = c.Put(t.Context(), "large", large)
		must(t, err)
	}
	finds(t, b, 30*time.Second, "note etcd-single", "warning etcd-quota")
	for err == nil {
		_, err = c.Put(t.Context(), "large", large)
	}
	if !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Fatal(err)
	}
	finds(t, b, 30*time.Second, "note etcd-single", "error etcd-alarm", "error lock-refused")
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

func TestEtcdCluster(t *testing.T) {
	t.Parallel()
	members := testserver.EtcdCluster(t, 3)
	var addrs []string
	for _, m := range members {
		addrs = append(addrs, m.Addr())
	}
	b := open(t, "etcd://"+strings.Join(addrs, ",")).Backend
	r := finds(t, b, 30*time.Second)
	if r.Failover < time.Second || r.Failover > 3*time.Second || r.Clock != nil {
		t.Errorf("the report is %+v", r)
	}
	finds(t, b, 3*time.Second, "warning etcd-election-timeout")
	must(t, members[2].Kill())
	until(t, "the others go on", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := dialEtcd(t, members[0]).Get(ctx, "key")
		return err == nil
	})
	if r := finds(t, b, 30*time.Second, "warning etcd-member-down"); !strings.Contains(r.Findings[0].Server, members[2].Addr()) {
		t.Errorf("it is said of %s", r.Findings[0].Server)
	}
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
