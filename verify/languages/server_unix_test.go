//go:build unix

package languages

import (
	"bytes"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock/drivertest/steps"
)

// server is a process of fencelock serve on a SQLite file of its own.
type server struct {
	url string
	pid int
	log *logged
}

// startServer starts a server and returns when its store answers. It ends with the test.
func startServer(t *testing.T) server {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	steps.Must(t, err)
	addr := l.Addr().String()
	l.Close()
	log := &logged{}
	cmd := exec.Command(command, "serve", "--listen", addr, "--url", "sqlite://"+filepath.Join(t.TempDir(), "locks.db"))
	cmd.Stdout, cmd.Stderr = log, log
	steps.Must(t, cmd.Start())
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // also one that is stopped
		<-done
	})
	s := server{url: "http://" + addr, pid: cmd.Process.Pid, log: log}
	for end := time.Now().Add(30 * time.Second); ; {
		if answer, err := http.Get(s.url + "/readyz"); err == nil {
			answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				return s
			}
		}
		select {
		case err := <-done:
			done <- err
			t.Fatalf("the server ended: %v\n%s", err, log)
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(end) {
			t.Fatalf("the server is not ready:\n%s", log)
		}
	}
}

// logged is what a process wrote.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// end is the last lines.
func (l *logged) end() string {
	lines := strings.Split(l.String(), "\n")
	return strings.Join(lines[max(0, len(lines)-20):], "\n")
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
