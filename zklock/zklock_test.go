package zklock

import (
	"os"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest"
	"github.com/fencelock/fencelock/internal/testserver"
	"github.com/fencelock/fencelock/internal/worker"
)

func TestMain(m *testing.M) {
	worker.Main(worker.On(func(s store) (driver.Backend, func(), error) {
		return New([]string{s.Server}, &Options{Prefix: s.Prefix, SessionTimeout: workerSession}), func() {}, nil
	}))
	testserver.Parallel("16")
	code := m.Run()
	testserver.StopShared(code != 0)
	os.Exit(code)
}

// lawSession is the session timeout where laws are played: long enough for a busy
// machine, short enough to be waited for.
const lawSession = 3 * time.Second

// laws are the options for a store on which a connection keeps claims alive.
var laws = []drivertest.Option{
	drivertest.Lease(500 * time.Millisecond),
	drivertest.ExpiryLag(lawSession + 500*time.Millisecond),
	drivertest.Crash(func(b driver.Backend) { b.(*Backend).crash() }),
}

// crash ends b as kill -9 would: the server does not hear of it.
func (b *Backend) crash() {
	b.mu.Lock()
	s := b.newest
	b.mu.Unlock()
	if s != nil {
		s.end()
	}
	b.Close()
}

//verify:fault ZooKeeper | the laws
//verify:fault ZooKeeper | answers as the model does
func TestLaws(t *testing.T) {
	t.Parallel()
	open := opener(testserver.ZooKeeper(t))
	drivertest.Run(t, open, laws...)
	drivertest.Model(t, open)
}

// opener opens views as laws want them. The first two of each law have long leases;
// the server grants those that follow, which laws crash, a session that is short
// enough to be waited for.
func opener(servers ...*testserver.Server) drivertest.Opener {
	var mu sync.Mutex
	opened := map[*testing.T]int{}
	return func(t *testing.T) driver.Backend {
		b := connect(t, &Options{SessionTimeout: 9 * time.Minute}, servers...)
		mu.Lock()
		defer mu.Unlock()
		if opened[t]++; opened[t] > 2 {
			b.timeout = lawSession
		}
		return b
	}
}

func connect(t testing.TB, o *Options, servers ...*testserver.Server) *Backend {
	t.Helper()
	var addrs []string
	for _, s := range servers {
		addrs = append(addrs, s.Addr())
	}
	b := New(addrs, below(t, o))
	t.Cleanup(func() { b.Close() })
	return b
}
