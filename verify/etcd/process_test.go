package etcd_test

import (
	"testing"

	"github.com/fencelock/fencelock/internal/worker"
)

func trial(t *testing.T) worker.Trial[store] {
	t.Parallel()
	x := newScene(t)
	return worker.Trial[store]{Store: store{x.server.Addr(), x.prefix}, Backend: x.backend(), Lease: lease, Late: lag}
}

func TestProcessesNeverOverlap(t *testing.T)                  { trial(t).NeverOverlap(t, 4, 50) }
func TestKilledHolderIsGoneAfterItsLease(t *testing.T)        { trial(t).KilledHolder(t) }
func TestKilledWaiterDelaysNobodyBeyondItsLease(t *testing.T) { trial(t).KilledWaiter(t) }
func TestKilledAtAnyMomentNothingStays(t *testing.T)          { trial(t).KilledAtAnyMoment(t, 8, nil) }
