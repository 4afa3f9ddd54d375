//go:build unix

package sql_test

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/worker"
)

func TestStoppedHolderLearnsThatItIsGone(t *testing.T) {
	each(t, everyWay, func(t *testing.T, s *store) {
		b := s.backend(t)
		use(t, b, "k")
		p := s.start(t, worker.Renew, 30*time.Second, 0) // each six seconds
		old, _ := p.Held()
		next := wait(t, b, claim("k"))
		p.Signal(syscall.SIGSTOP)
		s.expire(t)
		next = granted(t, b, next)
		steps.Rises(t, old, next.Token)
		p.Signal(syscall.SIGCONT)
		p.Hears("renew gone")
		p.Hears("left gone")
		p.Succeeds()
		renewed(t, b, next) // what came back has not ended the claim of its successor
		leave(t, b, next)
		empty(t, b)
	})
}

// TestStoppedAnywhereNobodyIsKept stops a busy process at random moments, also in the
// middle of its steps: no line may stay locked while it stands.
func TestStoppedAnywhereNobodyIsKept(t *testing.T) {
	each(t, onServers, func(t *testing.T, s *store) {
		p := s.start(t, worker.Storm, 300*time.Millisecond, 0)
		p.Hears("works")
		b := s.backend(t)
		for i := range 30 {
			pause(time.Duration(3000+i*177) * time.Microsecond)
			p.Signal(syscall.SIGSTOP)
			for key := range 3 {
				ticket, err := b.Enter(soon(t), noWait(claim(fmt.Sprint("k", key))))
				if err == nil {
					leave(t, b, ticket)
				} else if !errors.As(err, new(*driver.BusyError)) {
					t.Errorf("a try beside a stopped process: %v", err)
				}
			}
			p.Signal(syscall.SIGCONT)
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
