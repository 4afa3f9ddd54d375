//go:build verify

package redislock

import (
	"testing"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest"
)

var groupsWithLaws = map[string]func(t testing.TB) *group{
	"sentinel": calm(sentinelGroup), "cluster": calm(clusterGroup),
}

// TestLawsOfOtherWays holds the other ways to run the backend to the laws of package driver.
func TestLawsOfOtherWays(t *testing.T) {
	ways := []struct {
		name string
		open func(t *testing.T) drivertest.Opener
	}{
		{"least privilege", func(t *testing.T) drivertest.Opener {
			s := newServer(t)
			restrict(t, s)
			return func(t *testing.T) driver.Backend { return closing(t, New(dialLocks(t, s), nil)) }
		}},
		{"cluster", func(t *testing.T) drivertest.Opener {
			s := cluster(t)
			restrict(t, s, "+cluster|slots", "+command")
			return func(t *testing.T) driver.Backend { return closing(t, New(dialCluster(t, s), nil)) }
		}},
	}
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			laws(t, w.open(t))
		})
	}
}
