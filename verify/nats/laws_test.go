package nats_test

import (
	"crypto/rand"
	"fmt"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/drivertest"
	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/worker"
	"github.com/fencelock/fencelock/natslock"
	"github.com/fencelock/fencelock/verify/natsserver"
)

func TestMain(m *testing.M) {
	worker.Main(worker.On(func(p place) (driver.Backend, func(), error) {
		nc, err := nats.Connect(p.URL)
		if err != nil {
			return nil, nil, err
		}
		b, err := p.backend(nc)
		return b, nc.Close, err
	}))
	before := runtime.NumGoroutine()
	code := m.Run()
	if s := shared(); s.Server != nil {
		s.Stop()
		os.RemoveAll(s.dir)
	}
	for end := time.Now().Add(time.Minute); runtime.NumGoroutine() > before && code == 0; runtime.Gosched() {
		if time.Now().After(end) {
			fmt.Fprintln(os.Stderr, runtime.NumGoroutine()-before, "goroutines are left")
			code = 1
		}
	}
	os.Exit(code)
}

// place is a bucket of a server.
type place struct {
	URL, Bucket string
	Replicas    int
}

func (p place) backend(nc *nats.Conn) (*natslock.Backend, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	return natslock.New(js, &natslock.Options{Bucket: p.Bucket, Replicas: p.Replicas}), nil
}

// connect connects until the test ends.
func (p place) connect(t testing.TB, o ...nats.Option) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(p.URL, o...)
	steps.Must(t, err)
	t.Cleanup(nc.Close)
	return nc
}

// view is a backend on nc.
func (p place) view(t testing.TB, nc *nats.Conn) *natslock.Backend {
	t.Helper()
	b, err := p.backend(nc)
	steps.Must(t, err)
	t.Cleanup(func() { b.Close() })
	return b
}

// jetStream returns what an operator uses.
func (p place) jetStream(t *testing.T) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(p.connect(t))
	steps.Must(t, err)
	return js
}

// open gives each view a connection of its own, as two processes have.
func (p place) open(t *testing.T) driver.Backend {
	t.Helper()
	return p.view(t, p.connect(t, nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond)))
}

// shared is the server of all tests that do nothing to it.
var shared = sync.OnceValue(func() (s struct {
	*natsserver.Server
	dir string
	err error
}) {
	if s.dir, s.err = os.MkdirTemp("", "nats"); s.err == nil {
		s.Server, s.err = natsserver.Start(s.dir)
	}
	return s
})

// bucket is a new one, on the server that tests share.
func bucket(t testing.TB) place {
	t.Helper()
	s := shared()
	steps.Must(t, s.err)
	return place{s.URL(), rand.Text(), 0}
}

//verify:fault NATS | the laws
func TestLaws(t *testing.T) {
	t.Parallel()
	drivertest.Run(t, bucket(t).open, drivertest.ExpiryLag(50*time.Millisecond))
}

//verify:fault NATS | answers as the model does
func TestAnswersAreThoseOfTheModel(t *testing.T) {
	t.Parallel()
	drivertest.Model(t, bucket(t).open)
}

// A free lock is taken and left, and for comparison a value of a bucket is updated twice.
func BenchmarkFreeLock(b *testing.B) {
	p := bucket(b)
	nc := p.connect(b)
	b.Run("lock", func(b *testing.B) {
		l := p.view(b, nc)
		for b.Loop() {
			t, err := l.Enter(b.Context(), steps.Claim("k"))
			steps.Must(b, err)
			steps.Must(b, l.Leave(b.Context(), t, driver.Exit{}))
		}
	})
	b.Run("two updates", func(b *testing.B) {
		js, err := jetstream.New(nc)
		steps.Must(b, err)
		kv, err := js.CreateKeyValue(b.Context(), jetstream.KeyValueConfig{Bucket: "floor"})
		steps.Must(b, err)
		revision, err := kv.PutString(b.Context(), "k", "first")
		steps.Must(b, err)
		for b.Loop() {
			for range 2 {
				if revision, err = kv.Update(b.Context(), "k", make([]byte, 300), revision); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
}
