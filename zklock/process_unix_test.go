//go:build unix

package zklock

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/internal/worker"
)

func trial(t *testing.T, session time.Duration) (*testserver.Server, worker.Trial[store]) {
	t.Helper()
	s, b := oneSession(t)
	return s, worker.Trial[store]{
		Store: store{s.Addr(), prefix(t), session}, Backend: b, Lease: session, Late: 9 * session,
	}
}

func TestProcessesNeverOverlap(t *testing.T) {
	s, processes := trial(t, long.SessionTimeout)
	processes.NeverOverlap(t, 4, 15)
	empty(t, s)
}

// The server clears the container away that the process leaves empty.
//
//verify:fault ZooKeeper | the holder is killed
//verify:fault ZooKeeper | nothing is left
//verify:fault Processes | kill -9 while being handed the lock, at any moment
func TestKilledHolderIsGoneWithItsSession(t *testing.T) {
	s, processes := trial(t, workerSession)
	processes.KilledHolder(t)
	empty(t, s)
}

//verify:fault ZooKeeper | the first waiter is killed
func TestKilledWaiterDelaysNobodyBeyondItsSession(t *testing.T) {
	s, processes := trial(t, workerSession)
	processes.KilledWaiter(t)
	empty(t, s)
}

// A process that is stopped for longer than its session finds out with its first
// renewal, and its release does not end the next holder's claim.
//
//verify:fault ZooKeeper | the holder is stopped past its lease
func TestStoppedHolderLearnsThatItIsGone(t *testing.T) {
	s, b := oneSession(t)
	place := store{s.Addr(), prefix(t), workerSession}
	p := worker.Start(t, worker.Order[store]{Do: worker.Renew, Store: place, Key: "k"})
	p.Held()
	w := steps.Wait(t, b, steps.Claim("k"))
	p.Signal(syscall.SIGSTOP)
	w = steps.Granted(t, b, w)
	p.Signal(syscall.SIGCONT)
	// A connection that broke, and a session still on its way, are no answer.
	for !strings.HasPrefix(p.Hears("renew"), "gone") {
	}
	for !strings.HasPrefix(p.Hears("left"), "gone") {
	}
	p.Succeeds()
	steps.OK(t, steps.Renew(t, b, w))
	steps.Leave(t, b, w)
	empty(t, s)
}
