//go:build unix

package zklock

import (
	"strings"
	"syscall"
	"testing"

	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/internal/worker"
)

func trial(t *testing.T, s *testserver.Server) worker.Trial[store] {
	return worker.Trial[store]{
		Store: store{s.Addr(), prefix(t)}, Backend: connect(t, long, s), Lease: workerSession, Late: serverAdds,
	}
}

func start(t *testing.T, s *testserver.Server, do worker.Job) *worker.Process {
	t.Helper()
	return worker.Start(t, worker.Order[store]{Do: do, Store: store{s.Addr(), prefix(t)}, Key: "k"})
}

func TestProcessesNeverOverlap(t *testing.T) {
	t.Parallel()
	s := server(t)
	trial(t, s).NeverOverlap(t, 4, 15)
	empty(t, s)
}

//verify:fault ZooKeeper | the holder is killed
func TestKilledHolderIsGoneWithItsSession(t *testing.T) {
	t.Parallel()
	s := server(t)
	trial(t, s).KilledHolder(t)
	empty(t, s)
}

//verify:fault ZooKeeper | the first waiter is killed
func TestKilledWaiterDelaysNobodyBeyondItsSession(t *testing.T) {
	t.Parallel()
	s := server(t)
	trial(t, s).KilledWaiter(t)
	empty(t, s)
}

// Nothing is left behind by a process that is killed while it holds the only claim:
// the server clears the empty container away.
//
//verify:fault ZooKeeper | nothing is left
//verify:fault Processes | kill -9 while being handed the lock, at any moment
func TestKilledHolderLeavesNothing(t *testing.T) {
	t.Parallel()
	s := server(t)
	p := start(t, s, worker.Hold)
	p.Held()
	p.Kill()
	empty(t, s)
}

// A process that is stopped for longer than its session finds out with its first
// renewal, and its release does not end the next holder's claim.
//
//verify:fault ZooKeeper | the holder is stopped past its lease
func TestStoppedHolderLearnsThatItIsGone(t *testing.T) {
	t.Parallel()
	s := server(t)
	p := start(t, s, worker.Renew)
	p.Held()
	b := connect(t, long, s)
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
	steps.OK(t, renew(b, w))
	steps.Leave(t, b, w)
	empty(t, s)
}
