//go:build unix

package languages

import (
	"bytes"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testserver"
)

// server is a process of fencelock serve on a SQLite file of its own.
type server struct {
	url string
	pid int
	log *logged
}

// startServer starts a server and returns when its store answers. It ends with the test.
func startServer(t *testing.T) server {
	log := &logged{}
	cmd := exec.Command(command, "serve", "--listen", "127.0.0.1:0", "--url", "sqlite://"+filepath.Join(t.TempDir(), "locks.db"))
	cmd.Stdout, cmd.Stderr = log, log
	done, err := testserver.Spawn(cmd)
	steps.Must(t, err)
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // also one that is stopped
		<-done
	})
	s := server{pid: cmd.Process.Pid, log: log}
	testserver.Eventually(t, 3*time.Minute, "the server is ready", func() bool {
		select {
		case <-done:
			t.Fatalf("the server ended:\n%s", log)
		default:
		}
		_, at, printed := strings.Cut(log.String(), " at http://")
		at, _, whole := strings.Cut(at, "\n")
		if s.url = "http://" + at; !printed || !whole {
			return false
		}
		answer, err := http.Get(s.url + "/readyz")
		if err != nil {
			return false
		}
		answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	})
	return s
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
