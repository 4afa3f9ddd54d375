package torture

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fencelock/fencelock/internal/testserver"
)

// host is what testserver needs of a test, where there is none.
type host struct {
	dir   string
	disks []string // folders that are disks of their own
	ends  []func()
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
	if err != nil {
		h.Fatalf("%v", err)
	}
	mounted, err := mountDisk(dir)
	if err != nil {
		h.Fatalf("a disk for a server: %v", err)
	}
	if mounted {
		h.disks = append(h.disks, dir)
		h.Cleanup(func() { h.keepLog(dir) })
	}
	return dir
}

// keepLog unmounts a disk, and leaves the log that was on it: whoever asks what happened needs it.
func (h *host) keepLog(dir string) {
	_ = leaveDisk(dir, testserver.LogName) // a disk that stays ends with the process
}

// leaveDisk unmounts a disk, and leaves those of its files whose names match a pattern.
func leaveDisk(dir, pattern string) error {
	names, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil {
		return err
	}
	texts := map[string][]byte{}
	for _, name := range names {
		if texts[name], err = os.ReadFile(name); err != nil {
			return err
		}
	}
	if err := unmountDisk(dir); err != nil {
		return err
	}
	for name, text := range texts {
		if err := os.WriteFile(name, text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// try does something with h, and returns what was fatal for it.
func (h *host) try(do func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			failed, ours := r.(failure)
			if !ours {
				panic(r)
			}
			err = failed.error
		}
	}()
	return do()
}

// keepUp starts a server again each time that it ends, as its host would. PgBouncer 1.18 ends when clients give up
// statements: FATAL, disconnect_client(): bad client state.
func (h *host) keepUp(s *testserver.Server) {
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			case <-s.Done():
			}
			for s.Restart() != nil { // the server behind it may be down
				select {
				case <-stop:
					return
				case <-time.After(100 * time.Millisecond):
				}
			}
		}
	}()
	h.Cleanup(func() { close(stop); <-stopped })
}

func (h *host) stop() {
	for _, end := range slices.Backward(h.ends) {
		end()
	}
	h.ends = nil
}
