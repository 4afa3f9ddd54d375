package redislock

import (
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/internal/worker"
)

func TestMain(m *testing.M) {
	worker.Main(worker.On(func(at address) (driver.Backend, func(), error) {
		rdb := at.dial()
		return New(rdb, nil), func() { rdb.Close() }, nil
	}))
	testserver.Parallel(4)
	m.Run()
}

// trial waits for a lease: for ten of them at most.
func (g *group) trial() worker.Trial[address] {
	return worker.Trial[address]{
		Store: g.address(), Backend: g.connect(nil), Lease: 5 * time.Second, Late: 45 * time.Second,
	}
}

// A killed holder's lock is free when its lease is over, and a killed waiter delays
// nobody for longer than its own.
func TestKilledProcessesOfGroups(t *testing.T) {
	onEach(t, stores, func(t *testing.T, g *group) {
		g.trial().KilledHolder(t)
		g.trial().KilledWaiter(t)
	})
}
