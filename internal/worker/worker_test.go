package worker

import (
	"os"
	"testing"
	"time"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/memlock"
)

func TestMain(m *testing.M) {
	Main(On(func(string) (driver.Backend, func(), error) { return memlock.New(), func() {}, nil }))
	os.Exit(m.Run())
}

// A worker whose parent is gone must not stay, whatever it does.
func TestWorkerEndsWithItsParent(t *testing.T) {
	t.Parallel()
	p := Start(t, Order[string]{Do: Storm, Key: "k", TTL: time.Minute})
	p.Hears("works")
	p.in.Close()
	if err := p.end(); err == nil {
		t.Error("a storm ended by itself")
	}
}
