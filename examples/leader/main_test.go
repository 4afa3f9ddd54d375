//go:build unix

package main

import (
	"bufio"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fencelock/fencelock/internal/testserver"
)

func TestMain(m *testing.M) {
	if os.Getenv("STORY_MACHINE") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// process is a replica.
type process struct {
	t     *testing.T
	name  string
	cmd   *exec.Cmd
	lines chan string

	mu   sync.Mutex
	said []string
}

func start(t *testing.T, addr, name string) *process {
	cmd := exec.Command(os.Args[0], addr, name)
	cmd.Env = append(os.Environ(), "STORY_MACHINE=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, name: name, cmd: cmd, lines: make(chan string, 1000)}
	go func() {
		for s := bufio.NewScanner(out); s.Scan(); {
			p.mu.Lock()
			p.said = append(p.said, s.Text())
			p.mu.Unlock()
			p.lines <- s.Text()
		}
		close(p.lines)
	}()
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return p
}

// says waits for a line that begins with text.
func (p *process) says(text string) {
	p.t.Helper()
	late := time.After(20 * time.Second)
	for {
		select {
		case line, ok := <-p.lines:
			if !ok {
				p.t.Fatalf("%s ended before it said %q; it said %q", p.name, text, p.said)
			}
			if strings.HasPrefix(line, text) {
				return
			}
		case <-late:
			p.mu.Lock()
			defer p.mu.Unlock()
			p.t.Fatalf("%s did not say %q; it said %q", p.name, text, p.said)
		}
	}
}

// What go run ./leader does.
func TestThreeReplicas(t *testing.T) {
	t.Parallel()
	if err := threeReplicas(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestNextReplicaLeads(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t)
	a := start(t, server.Addr(), "a")
	a.says("lead under token")
	b := start(t, server.Addr(), "b")
	b.says("leader a")

	// a is asked to end: b leads at once.
	a.cmd.Process.Signal(syscall.SIGTERM)
	asked := time.Now()
	b.says("lead under token")
	if took := time.Since(asked); took > lease/2 {
		t.Errorf("b led %v after a was asked to end; a lease is %v", took, lease)
	}

	// b is killed: c leads when the lease of b has run out.
	c := start(t, server.Addr(), "c")
	c.says("leader b")
	b.cmd.Process.Kill()
	killed := time.Now()
	c.says("lead under token")
	if took := time.Since(killed); took > lease+2*time.Second {
		t.Errorf("c led %v after b was killed; a lease is %v", took, lease)
	}
}
