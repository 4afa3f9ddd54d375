//go:build unix

package redislock

import (
	"syscall"
	"testing"
	"time"
)

// A holder that is stopped for longer than its lease says so at its first look, and
// the next in line has a larger token.
func TestStoppedHolderOfGroupsLearnsThatItIsGone(t *testing.T) {
	onEach(t, stores, func(t *testing.T, g *group) {
		const ttl = time.Second
		c := client(t, g, ttl, nil)
		holder := g.start("key", ttl)
		first, _ := holder.Until("held")
		holder.Signal(syscall.SIGSTOP)
		stopped := time.Now()
		lease := lock(t, c, "key")
		tookAtMost(t, stopped, ttl+time.Second)
		if second := lease.Token().String(); len(second) < len(first) || len(second) == len(first) && second <= first {
			t.Errorf("token %s follows %s", second, first)
		}
		holder.Tell("look")
		holder.Signal(syscall.SIGCONT)
		if got, _ := holder.Until("lost"); got != "true" {
			t.Errorf("the holder went on for longer than its lease and says that it is lost: %s", got)
		}
		ok(t, lease.Err())
		holder.Tell("leave")
		holder.Until("left")
		ok(t, lease.Release(t.Context()))
	})
}
