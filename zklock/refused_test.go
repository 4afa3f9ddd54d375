package zklock

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/driverutil"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/go-zookeeper/zk"
)

// isRefused checks that err says that the server has done nothing, and may do it later.
func isRefused(t *testing.T, err error, word string) {
	t.Helper()
	if !driverutil.RefusedForNow(err) ||
		!strings.Contains(err.Error(), word) {
		t.Errorf("%v (%T); want driver.ErrRefused that says %q", err, err, word)
	}
}

// The administrator has given the prefix a quota, and it is used up.
func TestQuotaThatIsUsedUp(t *testing.T) {
	t.Parallel()
	s := testserver.ZooKeeper(t, testserver.Config("enforceQuota=true"))
	b := connect(t, long, s)
	held := steps.Hold(t, b, steps.Claim("held"))
	c := admin(t, s)
	limits := func(count int) []byte {
		return fmt.Appendf(nil, "count=%d,bytes=-1=;byteHardLimit=-1;countHardLimit=%[1]d", count)
	}
	quota := "/zookeeper/quota" + prefix(t)
	for _, node := range []string{quota, quota + "/zookeeper_limits", quota + "/zookeeper_stats"} {
		_, err := c.Create(node, limits(1), 0, zk.WorldACL(zk.PermAll))
		steps.Must(t, err)
	}
	_, err := b.Enter(t.Context(), steps.Claim("new"))
	isRefused(t, err, "quota")
	_, err = b.Enter(t.Context(), steps.Claim("held"))
	isRefused(t, err, "quota")
	steps.OK(t, steps.Renew(t, b, held))
	steps.Leave(t, b, held)

	steps.Must(t, steps.ErrOf(c.Set(quota+"/zookeeper_limits", limits(1000), -1)))
	steps.Leave(t, b, steps.Hold(t, b, steps.Claim("new")))
	empty(t, s)
}

// The server takes one request at a time, and drops those that have waited for it. A claim that
// it refused is not in line, and is not put there later.
func TestServerThatThrottles(t *testing.T) {
	t.Parallel()
	s := testserver.ZooKeeper(t, testserver.Config("request_throttle_max_requests=1", "throttled_op_wait_time=1"))
	b := connect(t, long, s)
	var throttled int
	eventually(t, "a request is throttled", func() bool {
		var all sync.WaitGroup
		errs := make([]error, 50)
		for i := range errs {
			all.Go(func() {
				k, err := b.Enter(steps.Soon(t), steps.Claim(fmt.Sprint("k", i)))
				if errs[i] = err; err != nil {
					return // a claim that was refused is not in line: no Leave
				}
				for {
					if err = b.Leave(t.Context(), k, driver.Exit{}); err == nil || driver.Gone(err) || t.Context().Err() != nil {
						return
					}
				}
			})
		}
		all.Wait()
		for _, err := range errs {
			if err != nil && strings.Contains(err.Error(), "throttle") && !strings.Contains(err.Error(), "could not be deleted") {
				isRefused(t, err, "throttle")
				throttled++
			}
		}
		return throttled > 0
	})
	t.Logf("%d claims were refused", throttled)
	for i := range 50 {
		eventually(t, "the server takes a request", func() bool {
			k, err := b.Enter(steps.Soon(t), steps.Claim(fmt.Sprint("k", i)))
			if err == nil && !k.Granted {
				t.Fatalf("a claim is in the line of %q; want none", k.Key)
			}
			return err == nil
		})
	}
}

// The server admits only those who say who they are. Without a Digest that does not change.
func TestServerThatAdmitsNobodyUnnamed(t *testing.T) {
	t.Parallel()
	s := testserver.ZooKeeper(t, testserver.Config("enforce.auth.enabled=true", "enforce.auth.schemes=digest"))
	_, err := connect(t, long, s).Enter(steps.Soon(t), steps.Claim("k"))
	if !errors.Is(err, driver.ErrPermanent) || !strings.Contains(err.Error(), "Digest") {
		t.Errorf("%v; want driver.ErrPermanent, and a text that names the Digest", err)
	}
	steps.Hold(t, connect(t, &Options{Digest: "user:password"}, s), steps.Claim("k"))
}

// A user may put a claim into a line, and may not read who is before it. The claim is refused,
// and nobody waits behind it.
func TestClaimThatMayNotReadItsLineLeavesIt(t *testing.T) {
	t.Parallel()
	s := server(t)
	alice := &Options{Digest: "alice:secret", ACL: append(zk.WorldACL(zk.PermAll&^zk.PermRead), zk.DigestACL(zk.PermAll, "alice", "secret")...)}
	a := connect(t, alice, s)
	held := steps.Hold(t, a, steps.Claim("k"))
	_, err := connect(t, long, s).Enter(t.Context(), steps.Claim("k"))
	if !errors.Is(err, driver.ErrPermanent) || !errors.Is(err, driver.ErrRefused) {
		t.Errorf("%v; want driver.ErrPermanent", err)
	}
	steps.Leave(t, a, held)
	steps.Leave(t, a, steps.Hold(t, a, steps.Claim("k")))
}
