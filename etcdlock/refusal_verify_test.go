//go:build verify

package etcdlock_test

import (
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testserver"
)

// Two of three members are gone. The one that is left knows no leader, and has done nothing.
func TestMemberWithoutALeader(t *testing.T) {
	t.Parallel()
	members := testserver.EtcdCluster(t, 3)
	b := backend(t, client(t, members[0]), newPrefix())
	steps.Leave(t, b, steps.Hold(t, b, steps.Claim("k")))
	steps.Must(t, members[1].Kill())
	steps.Must(t, members[2].Kill())
	var err error
	testserver.Eventually(t, time.Minute, "Enter is refused", func() bool {
		_, err = b.Enter(steps.Soon(t), steps.Claim("k"))
		return isRefused(err)
	})
	steps.Is(t, "Enter", err, rpctypes.ErrNoLeader)
}
