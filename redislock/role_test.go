package redislock

import (
	"bytes"
	"testing"

	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/faultproxy"
	"github.com/fencelock/fencelock/internal/testserver"
)

// A replica becomes a master after it has said what it is, and before it runs the script that fails on replicas.
func TestReplicaThatIsPromotedAfterItHasSaidItsRoleGrants(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	ask(t, s, "REPLICAOF", "127.0.0.1", "1")
	p, b := through(t, s)
	p.Handle(func(r *faultproxy.Request) faultproxy.Action {
		if bytes.Contains(r.Data, []byte(replicaText)) {
			ask(t, s, "REPLICAOF", "NO", "ONE")
		}
		return faultproxy.Pass
	})
	steps.Hold(t, b, mutex("job"))
}
