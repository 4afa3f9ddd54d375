package zklock

import (
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest"
	"github.com/fencelock/fencelock/internal/testserver"
)

// lawSession is the session timeout where laws are played: long enough for a busy
// machine, short enough to be waited for.
const lawSession = 4 * time.Second

// laws are the options for a store on which a connection keeps claims alive.
var laws = []drivertest.Option{
	drivertest.Lease(time.Second),
	drivertest.ExpiryLag(lawSession + time.Second),
	drivertest.Crash(func(b driver.Backend) { b.(*Backend).crash() }),
}

// crash ends b as kill -9 would: the server does not hear of it.
func (b *Backend) crash() {
	b.link.sever()
	b.Close()
}

func TestLaws(t *testing.T) {
	t.Parallel()
	open := opener(testserver.ZooKeeper(t))
	drivertest.Run(t, open, laws...)
	drivertest.Model(t, open)
}

func opener(servers ...*testserver.Server) drivertest.Opener {
	return func(t *testing.T) driver.Backend {
		return connect(t, &Options{SessionTimeout: lawSession}, servers...)
	}
}

func connect(t testing.TB, o *Options, servers ...*testserver.Server) *Backend {
	t.Helper()
	var addrs []string
	for _, s := range servers {
		addrs = append(addrs, s.Addr())
	}
	b := New(addrs, o)
	t.Cleanup(func() { b.Close() })
	return b
}
