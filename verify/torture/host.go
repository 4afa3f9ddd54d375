package torture

import (
	"fmt"
	"os"
	"slices"

	"github.com/fencelock/fencelock/internal/testserver"
)

// host is what testserver needs of a test, where there is none.
type host struct {
	dir  string
	ends []func()
}

// failure is what Fatalf panics with.
type failure struct{ error }

func (h *host) Helper()             {}
func (h *host) Failed() bool        { return false }
func (h *host) Logf(string, ...any) {}
func (h *host) Cleanup(f func())    { h.ends = append(h.ends, f) }

func (h *host) Fatalf(format string, args ...any) { panic(failure{fmt.Errorf(format, args...)}) }

func (h *host) TempDir() string {
	dir, err := os.MkdirTemp(h.dir, "")
	if err == nil {
		err = os.Chmod(dir, 0o755) // servers that run as another user pass through
	}
	if err != nil {
		h.Fatalf("%v", err)
	}
	return dir
}

func (h *host) stop() {
	for _, end := range slices.Backward(h.ends) {
		end()
	}
	h.ends = nil
}

// server is one of ours. Pause reaches the processes that it has started, too:
// PostgreSQL has one for each connection.
type server struct{ *testserver.Server }

func (s server) Restart() error { return s.Server.Restart() }

func (s server) Pause() error {
	if err := s.Server.Pause(); err != nil {
		return err
	}
	return signalAll(testserver.Children(s.Pid()), true)
}

func (s server) Continue() error {
	err := signalAll(testserver.Children(s.Pid()), false)
	if own := s.Server.Continue(); err == nil {
		err = own
	}
	return err
}
