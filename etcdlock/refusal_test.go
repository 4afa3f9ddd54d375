package etcdlock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/driverutil"
	"github.com/fencelock/fencelock/internal/testserver"
)

func isRefused(err error) bool {
	return driverutil.RefusedForNow(err)
}

// A server that finds out that it has no space while it applies a put has put it (quotaApplierV3 of
// etcd). The claim was refused, so it is not in line.
func TestPutThatIsRefusedForSpaceIsTakenOutAgain(t *testing.T) {
	t.Parallel()
	x := newScene(t)
	b, d := x.delayed()
	d.commit = func(send sending) (*clientv3.TxnResponse, error) {
		if answer, err := send(); err != nil || !answer.Succeeded {
			return answer, err
		}
		d.pass()
		return nil, rpctypes.ErrNoSpace
	}
	c := steps.Claim("k")
	if _, err := b.Enter(steps.Soon(t), c); !isRefused(err) || !strings.Contains(err.Error(), "disarm") {
		t.Errorf("Enter: %v; want driver.ErrRefused that says what to do", err)
	}
	if left := x.keys("k"); len(left) > 0 {
		t.Errorf("%q is left", left)
	}

	// A claim that is in line already stays: this answer may be about it.
	held := steps.Hold(t, b, c)
	d.commit = func(send sending) (*clientv3.TxnResponse, error) {
		d.pass()
		return nil, rpctypes.ErrNoSpace
	}
	if _, err := b.Enter(steps.Soon(t), c); err == nil || errors.Is(err, driver.ErrRefused) {
		t.Errorf("Enter of a claim in line: %v; want an unknown outcome", err)
	}
	steps.OK(t, steps.Renew(t, b, held))
	steps.Leave(t, b, held)
}

// Many programs write to a server that is about to run out of space. Every claim that is refused,
// is not in line.
func TestServerThatRunsOutOfSpace(t *testing.T) {
	t.Parallel()
	const quota = 8 << 20
	x := sceneOn(t, testserver.Etcd(t, testserver.Config(fmt.Sprint("--quota-backend-bytes=", quota))))
	a := x.backend()
	held := steps.Hold(t, a, steps.Claim("held"))
	large := strings.Repeat("x", 100<<10)
	var all sync.WaitGroup
	var mu sync.Mutex
	refused := map[string]error{}
	full := func() bool { mu.Lock(); defer mu.Unlock(); return len(refused) >= 20 }
	for i := range 20 {
		all.Go(func() {
			for n := 0; n < 200 && !full(); n++ {
				_, _ = x.etcd.Put(context.Background(), x.prefix[:4]+"large", large)
				c := steps.Claim(fmt.Sprint("k", i, "-", n))
				if ticket, err := a.Enter(steps.Soon(t), c); err == nil {
					steps.Leave(t, a, ticket)
				} else {
					mu.Lock()
					refused[c.Key] = err
					mu.Unlock()
				}
			}
		})
	}
	all.Wait()
	if !full() {
		t.Fatalf("the server has space for all but %d claims", len(refused))
	}
	for key, err := range refused {
		if !isRefused(err) {
			t.Errorf("%s: %v; want driver.ErrRefused", key, err)
		}
		if left := x.keys(key + "/"); len(left) > 0 {
			t.Errorf("%q is left of a claim that was refused: %v", left, err)
		}
	}
	steps.OK(t, steps.Renew(t, a, held))
	steps.Leave(t, a, held)
}
