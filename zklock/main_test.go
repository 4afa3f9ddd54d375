package zklock

import (
	"flag"
	"os"
	"testing"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/internal/worker"
)

func TestMain(m *testing.M) {
	worker.Main(worker.On(func(s store) (driver.Backend, func(), error) {
		return New([]string{s.Server}, &Options{Prefix: s.Prefix, SessionTimeout: workerSession}), func() {}, nil
	}))
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		// Most tests wait for sessions to expire, and need no processor for that.
		if err := flag.Set("test.parallel", "16"); err != nil {
			panic(err)
		}
	}
	code := m.Run()
	stopServer()
	os.Exit(code)
}
