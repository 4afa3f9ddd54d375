//go:build unix

package sql_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/fencelock/fencelock/internal/worker"
)

func TestStoppedHolderLearnsThatItIsGone(t *testing.T) {
	trials(t, everyWay, time.Second, func(t *testing.T, _ *store, x worker.Trial[place]) {
		x.StoppedHolder(t, syscall.SIGSTOP, syscall.SIGCONT)
	})
}

// TestStoppedAnywhereNobodyIsKept stops a busy process at random moments, also in the
// middle of its steps: no line may stay locked while it stands.
func TestStoppedAnywhereNobodyIsKept(t *testing.T) {
	each(t, onServers, func(t *testing.T, s *store) {
		p := s.start(t, worker.Storm, 300*time.Millisecond, 0)
		p.Hears("works")
		b := s.backend(t)
		var longest time.Duration
		for i := range 30 {
			pause(time.Duration(3000+i*177) * time.Microsecond)
			p.Signal(syscall.SIGSTOP)
			for key := range 3 {
				began := time.Now()
				ticket, err := b.Enter(soon(t), noWait(claim(fmt.Sprint("k", key))))
				longest = max(longest, time.Since(began))
				if err == nil {
					leave(t, b, ticket)
				}
			}
			p.Signal(syscall.SIGCONT)
		}
		if longest > 5*time.Second {
			t.Errorf("a try beside a stopped process took %v", longest)
		}
		p.Kill()
		for key := range 3 {
			leave(t, b, granted(t, b, enter(t, b, claim(fmt.Sprint("k", key)))))
		}
		until(t, "the lease of what it had sent before it died is over", func() bool {
			for range b.Lines(soon(t), "") {
				return false
			}
			return true
		})
	})
}
