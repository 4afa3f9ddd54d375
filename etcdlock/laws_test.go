package etcdlock_test

import (
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/internal/worker"
)

// open gives each view a client of its own, as two processes have.
func open(prefix string, at ...string) drivertest.Opener {
	return func(t *testing.T) driver.Backend { return backend(t, dial(t, clientv3.Config{}, at...), prefix) }
}

//verify:fault etcd | the laws
func TestLaws(t *testing.T) {
	t.Parallel()
	drivertest.Run(t, open(newPrefix(), server(t).Addr()), drivertest.Lease(lease), drivertest.ExpiryLag(lag))
}

//verify:fault etcd | answers as the model does
func TestAnswersAsTheModelSays(t *testing.T) {
	t.Parallel()
	drivertest.Model(t, open(newPrefix(), server(t).Addr()))
}

func trial(t *testing.T) worker.Trial[store] {
	t.Parallel()
	x := newScene(t)
	const lease = 10 * time.Second
	return worker.Trial[store]{Store: store{x.server.Addr(), x.prefix}, Backend: x.backend(), Lease: lease, Late: 9 * lease}
}

func TestProcessesNeverOverlap(t *testing.T) { trial(t).NeverOverlap(t, 4, 50) }

//verify:fault etcd | the holder is killed
func TestKilledHolderIsGoneAfterItsLease(t *testing.T) { trial(t).KilledHolder(t) }

//verify:fault etcd | the first waiter is killed
func TestKilledWaiterDelaysNobodyBeyondItsLease(t *testing.T) { trial(t).KilledWaiter(t) }

//verify:fault Processes | kill -9 while being handed the lock, at any moment
func TestKilledAtAnyMomentNothingStays(t *testing.T) { trial(t).KilledAtAnyMoment(t, 8, nil) }

// BenchmarkFreeLock is the price of a lock that nobody else wants, Enter and Leave,
// on a server that writes to its disk before it answers and on one that does not.
func BenchmarkFreeLock(b *testing.B) {
	for name, fsync := range map[string]string{"fsync": "--unsafe-no-fsync=false", "nofsync": "--unsafe-no-fsync"} {
		b.Run(name, func(b *testing.B) {
			s := testserver.Etcd(b, testserver.Config(fsync))
			locks, c := backend(b, client(b, s), ""), steps.Claim("k")
			b.ReportAllocs()
			for b.Loop() {
				steps.Leave(b, locks, steps.Hold(b, locks, c))
			}
		})
	}
}
