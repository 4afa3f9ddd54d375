//go:build verify && linux

package languages

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fencelock/fencelock/drivertest/steps"
	"github.com/fencelock/fencelock/internal/testserver"
)

// debianPython has the packages that Debian installs.
const debianPython = "/usr/bin/python3"

// answer is the answer of a worker of a program.
type answer struct {
	PID   int    `json:"pid"`
	Seen  string `json:"seen"` // of the lease of the master
	Token int64  `json:"token"`
}

// master is a Python program that acquired the key "master" and forked workers.
type master struct {
	t      *testing.T
	server server
	cmd    *exec.Cmd
	ended  chan error
	log    *logged
	token  string // of its lock
	seen   map[int]bool
	last   int64
}

// startMaster starts a module of python3 with a program of testdata, and returns when its lock is held.
func startMaster(t *testing.T, env []string, args ...string) *master {
	m := &master{t: t, server: startServer(t), log: &logged{}, ended: make(chan error, 1), seen: map[int]bool{}}
	python, err := filepath.Abs(clients + "/python")
	steps.Must(t, err)
	m.cmd = exec.Command(debianPython, append([]string{"-m"}, args...)...)
	m.cmd.Dir = "testdata"
	m.cmd.Env = append(os.Environ(), "PYTHONPATH="+python, "PYTHONDONTWRITEBYTECODE=1", "SERVER="+m.server.url)
	m.cmd.Env = append(m.cmd.Env, env...)
	m.cmd.Stdout, m.cmd.Stderr = m.log, m.log
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	steps.Must(t, m.cmd.Start())
	go func() { m.ended <- m.cmd.Wait() }()
	t.Cleanup(func() {
		_ = syscall.Kill(-m.cmd.Process.Pid, syscall.SIGKILL)
		if t.Failed() {
			t.Logf("the program says:\n%s", m.log)
		}
	})
	m.until("the master has acquired its lock", func() bool {
		m.token = m.holder()
		return m.token != ""
	})
	return m
}

func (m *master) until(what string, is func() bool) {
	m.t.Helper()
	testserver.Eventually(m.t, 3*time.Minute, what, is)
}

// holder is the token of the one that holds "master", or "".
func (m *master) holder() string {
	m.t.Helper()
	r, err := http.Get(m.server.url + "/v1/line?key=master")
	steps.Must(m.t, err)
	defer r.Body.Close()
	var line struct {
		Holders []struct {
			Token string `json:"token"`
		} `json:"holders"`
	}
	steps.Must(m.t, json.NewDecoder(r.Body).Decode(&line))
	if len(line.Holders) != 1 {
		return ""
	}
	return line.Holders[0].Token
}

// heard checks what a worker said: it is a process that was not heard of before, it had a lock of its own, and it
// does not hold the lock of its master, which still does.
func (m *master) heard(a answer) {
	m.t.Helper()
	if a.PID == 0 || a.PID == m.cmd.Process.Pid || m.seen[a.PID] {
		m.t.Errorf("process %d answered; want a new worker of %d", a.PID, m.cmd.Process.Pid)
	}
	if a.Seen != "not held" || a.Token <= m.last {
		m.t.Errorf("a worker has token %d after %d, and the lock of its master is %s for it", a.Token, m.last, a.Seen)
	}
	m.seen[a.PID], m.last = true, a.Token
	if now := m.holder(); now != m.token {
		m.t.Errorf("the master held the lock with token %s, and now %q holds it", m.token, now)
	}
}

// ends ends the program, and checks that its lock is free then.
func (m *master) ends() {
	m.t.Helper()
	steps.Must(m.t, m.cmd.Process.Signal(syscall.SIGTERM))
	steps.Well(m.t, "the program", <-m.ended)
	if now := m.holder(); now != "" {
		m.t.Errorf("the program has released its lock and ended, and token %s holds it", now)
	}
}

// gunicorn --preload loads a program that acquires a lock. Each worker serves one request and exits; then
// atexit runs in it what the master registered. --max-requests is what programs use against leaks.
func TestWorkersOfGunicornDoNotReleaseTheLockOfTheirMaster(t *testing.T) {
	exits := filepath.Join(t.TempDir(), "exits")
	m := startMaster(t, []string{"EXITS=" + exits}, "gunicorn", "--preload", "--workers", "2", "--max-requests", "1",
		"--config", "python:preloaded", "--bind", "127.0.0.1:0", "preloaded:app")
	var addr string
	m.until("it listens", func() bool {
		_, at, _ := strings.Cut(m.log.String(), "Listening at: http://")
		addr, _, _ = strings.Cut(at, " ")
		return addr != ""
	})
	const requests = 8
	for n := range requests {
		var a answer
		m.until("a worker answers", func() bool {
			path := "/"
			if n%2 == 1 {
				path = "/release"
			}
			r, err := http.Get("http://" + addr + path)
			if err != nil {
				return false
			}
			defer r.Body.Close()
			body, err := io.ReadAll(r.Body)
			return err == nil && json.Unmarshal(body, &a) == nil && a.PID != 0
		})
		m.heard(a)
	}
	var said []byte
	m.until("the workers have exited", func() bool {
		said, _ = os.ReadFile(exits)
		return strings.Count(string(said), "\n") >= requests
	})
	if strings.Contains(string(said), "not held") {
		t.Errorf("the master lost its lock when a worker exited:\n%s", said)
	}
	m.ends()
}

// A celery worker loads a module that acquires a lock, and replaces each process of its pool after one task.
func TestProcessesOfCeleryDoNotReleaseTheLockOfTheirMaster(t *testing.T) {
	broker := testserver.Redis(t).URL()
	m := startMaster(t, []string{"BROKER=" + broker, "C_FORCE_ROOT=1"}, "celery", "--app", "tasks", "worker",
		"--pool", "prefork", "--concurrency", "2", "--loglevel", "INFO")
	const send = `
import json, sys
from celery import Celery
app = Celery(broker=sys.argv[1], backend=sys.argv[1])
for _ in range(8):
    print(json.dumps(app.send_task("tasks.work").get(timeout=600)), flush=True)
`
	sender := exec.Command(debianPython, "-c", send, broker)
	out, err := sender.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, err.(*exec.ExitError).Stderr)
	}
	for line := range strings.Lines(string(out)) {
		var a answer
		steps.Must(t, json.Unmarshal([]byte(line), &a))
		m.heard(a)
	}
	steps.Same(t, "processes answered", len(m.seen), 8)
	m.ends()
}
