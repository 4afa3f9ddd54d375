// Package story lets an example be started with one command: it has a Redis of its own
// unless one is named, and other machines are further processes of the same program.
package story

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"

	"github.com/fencelock/fencelock/internal/testserver"
)

// Redis returns the address that the command line has as its first argument, or starts a
// Redis and returns the address of that. The caller calls stop at the end.
func Redis(args ...string) (addr string, stop func(), err error) {
	if len(args) > 0 {
		return args[0], func() {}, nil
	}
	dir, err := os.MkdirTemp("", "story")
	if err != nil {
		return "", nil, err
	}
	server, err := testserver.StartRedis(context.Background(), dir)
	if err != nil {
		return "", nil, err
	}
	return server.Addr(), func() {
		_ = server.Stop()
		_ = os.RemoveAll(dir)
	}, nil
}

// Machine is this program once more, as another machine.
type Machine struct {
	*os.Process
	lines chan string
	ended chan error
}

var printing sync.Mutex // a line is a line

// Start starts a machine with these arguments. What it says goes to out, after its name.
// It is killed when ctx ends.
func Start(ctx context.Context, out io.Writer, name string, args ...string) (*Machine, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Env = append(os.Environ(), "STORY_MACHINE=1") // a test's binary looks at it
	r, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	m := &Machine{cmd.Process, make(chan string, 1000), make(chan error, 1)}
	go func() {
		for lines := bufio.NewScanner(r); lines.Scan(); {
			printing.Lock()
			fmt.Fprintf(out, "%s: %s\n", name, lines.Text())
			printing.Unlock()
			m.lines <- lines.Text()
		}
		close(m.lines)
		m.ended <- cmd.Wait()
	}()
	return m, nil
}

// Says waits until the machine says a line that begins with text.
func (m *Machine) Says(text string) error {
	for line := range m.lines {
		if len(line) >= len(text) && line[:len(text)] == text {
			return nil
		}
	}
	return fmt.Errorf("a machine ended before it said %q", text)
}

// Wait waits for the machine's end.
func (m *Machine) Wait() error {
	for range m.lines {
	}
	return <-m.ended
}
