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
	t.Parallel()
	for name, start := range stores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := start(t)
			const ttl = time.Second
			c := client(t, g, ttl, nil)
			holder := g.start("key", ttl)
			first, _ := holder.Until("held")
			holder.Signal(syscall.SIGSTOP)
			stopped := time.Now()
			lease, err := c.Lock(t.Context(), "key")
			if err != nil {
				t.Fatal(err)
			}
			if d := time.Since(stopped); d > ttl+time.Second {
				t.Errorf("the next in line got the lock %v after its holder was stopped; want at most %v", d, ttl+time.Second)
			}
			if second := lease.Token().String(); len(second) < len(first) || len(second) == len(first) && second <= first {
				t.Errorf("token %s follows %s", second, first)
			}
			holder.Tell("look")
			holder.Signal(syscall.SIGCONT)
			if got, _ := holder.Until("lost"); got != "true" {
				t.Errorf("the holder went on for longer than its lease and says that it is lost: %s", got)
			}
			if err := lease.Err(); err != nil {
				t.Errorf("the next holder lost the lock too: %v", err)
			}
			holder.Tell("leave")
			holder.Until("left")
			if err := lease.Release(t.Context()); err != nil {
				t.Errorf("Release: %v", err)
			}
		})
	}
}
