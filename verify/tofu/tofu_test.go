package tofu

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// patience is how long anything may take on a busy machine.
const patience = 2 * time.Minute

// tools are the commands under test, built once.
var tools = sync.OnceValues(func() (paths [2]string, err error) {
	dir, err := os.MkdirTemp("", "fencelock-tofu-")
	if err != nil {
		return paths, err
	}
	paths = [2]string{filepath.Join(dir, "tofu"), filepath.Join(dir, "fencelock")}
	build := func(dir, out, pkg string, env ...string) error {
		cmd := exec.Command("go", "build", "-o", out, pkg)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
		if b, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("go build %s: %w\n%s", pkg, err, b)
		}
		return nil
	}
	err = errors.Join(
		build(".", paths[0], "github.com/opentofu/opentofu/cmd/tofu", "GOWORK=off"),
		build("../../cmd/fencelock", paths[1], ".", "GOWORK="),
	)
	return paths, err
})

func TestMain(m *testing.M) {
	code := m.Run()
	if paths, _ := tools(); paths[0] != "" {
		_ = os.RemoveAll(filepath.Dir(paths[0]))
	}
	os.Exit(code)
}

// site is a folder with a store, states, and the configurations of several people.
type site struct {
	*testing.T
	dir             string
	tofu, fencelock string
	recorder        *recorder
}

func newSite(t *testing.T) *site {
	t.Helper()
	paths, err := tools()
	if err != nil {
		t.Fatal(err)
	}
	s := &site{T: t, dir: t.TempDir(), tofu: paths[0], fencelock: paths[1]}
	if err := os.WriteFile(filepath.Join(s.dir, "tofurc"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return s
}

// server is a fencelock serve.
type server struct {
	*exec.Cmd
	url   string
	audit *lockedBuffer
}

// lockedBuffer is written by a process and read by a test.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (s *site) storeURL() string { return "sqlite://" + filepath.Join(s.dir, "locks.db") }

// serve starts a server on the store and the states of s; listen is an address, or "127.0.0.1:0".
func (s *site) serve(listen string, flags ...string) *server {
	s.Helper()
	args := append([]string{"serve", "--listen", listen, "--url", s.storeURL(),
		"--terraform-state", filepath.Join(s.dir, "states")}, flags...)
	sv := &server{Cmd: exec.Command(s.fencelock, args...), audit: &lockedBuffer{}}
	sv.Stdout = sv.audit
	stderr, err := sv.StderrPipe()
	if err != nil {
		s.Fatal(err)
	}
	if err := sv.Start(); err != nil {
		s.Fatal(err)
	}
	s.Cleanup(sv.kill)
	lines := bufio.NewScanner(stderr)
	for sv.url == "" && lines.Scan() {
		_, sv.url, _ = strings.Cut(lines.Text(), " at ")
	}
	if sv.url == "" {
		s.Fatal("fencelock serve did not start")
	}
	go func() { _, _ = io.Copy(io.Discard, stderr) }()
	return sv
}

// kill ends the server as kill -9 does.
func (sv *server) kill() {
	_ = sv.Process.Kill()
	_ = sv.Wait()
}

// person is somebody with a configuration of the state prod.
type person struct {
	*site
	dir string
}

const configuration = `terraform {
  backend "http" {
    address        = "%[1]s/v1/terraform/network%%2Fprod"
    lock_address   = "%[2]s/v1/terraform/network%%2Fprod"
    unlock_address = "%[3]s/v1/terraform/network%%2Fprod"%[4]s
  }
}

variable "text" {}

resource "terraform_data" "it" {
  input            = var.text
  triggers_replace = var.text
  provisioner "local-exec" {
    command = "touch begun; for i in $(seq 1200); do [ -e go ] && exit 0; sleep 0.1; done; exit 1"
  }
}
`

// person makes a folder with a configuration, and initialises it. more is for the block of the
// backend.
func (s *site) person(name string, urls [3]string, more string) *person {
	s.Helper()
	p := s.stranger(name, urls, more)
	p.want(0, p.run("init"), "successfully initialized")
	return p
}

// stranger makes a folder with a configuration.
func (s *site) stranger(name string, urls [3]string, more string) *person {
	s.Helper()
	p := &person{s, filepath.Join(s.dir, name)}
	if err := os.Mkdir(p.dir, 0o700); err != nil {
		s.Fatal(err)
	}
	text := fmt.Sprintf(configuration, urls[0], urls[1], urls[2], more)
	if err := os.WriteFile(filepath.Join(p.dir, "main.tf"), []byte(text), 0o600); err != nil {
		s.Fatal(err)
	}
	return p
}

func same(url string) [3]string { return [3]string{url, url, url} }

func (p *person) file(name string) string { return filepath.Join(p.dir, name) }

// allow lets the provisioner end.
func (p *person) allow() {
	if err := os.WriteFile(p.file("go"), nil, 0o600); err != nil {
		p.Error(err)
	}
}

// running is a tofu that runs.
type running struct {
	*exec.Cmd
	out  lockedBuffer
	done chan error
}

func (p *person) begin(args ...string) *running {
	p.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	p.Cleanup(cancel)
	r := &running{Cmd: exec.CommandContext(ctx, p.tofu, append(args, "-no-color")...), done: make(chan error, 1)}
	r.Dir = p.dir
	r.Env = append(os.Environ(), "TF_CLI_CONFIG_FILE="+filepath.Join(p.site.dir, "tofurc"), "TF_IN_AUTOMATION=1", "HOME="+p.dir)
	r.Stdout, r.Stderr = &r.out, &r.out
	r.WaitDelay = time.Second // a provisioner of a killed tofu has its output
	if err := r.Start(); err != nil {
		p.Fatal(err)
	}
	go func() { r.done <- r.Wait() }()
	return r
}

// result is how a tofu ended.
type result struct {
	code int
	out  string
}

func (r *running) end() result {
	<-r.done
	return result{r.ProcessState.ExitCode(), r.out.String()}
}

func (p *person) run(args ...string) result {
	p.Helper()
	return p.begin(args...).end()
}

func applyArgs(text string, more ...string) []string {
	return append([]string{"apply", "-auto-approve", "-input=false", "-var", "text=" + text}, more...)
}

// apply begins an apply, and waits until it is at work, so that it has the lock.
func (p *person) apply(text string, more ...string) *running {
	p.Helper()
	r := p.begin(applyArgs(text, more...)...)
	p.until("apply is at work", func() bool { _, err := os.Stat(p.file("begun")); return err == nil })
	return r
}

func (s *site) until(what string, ok func() bool) {
	s.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			s.Fatalf("not within %v: %s", patience, what)
		}
	}
}

var space = regexp.MustCompile(`\s+`)

// want wants an exit code and texts, whatever the line breaks.
func (s *site) want(code int, r result, texts ...string) {
	s.Helper()
	flat := space.ReplaceAllString(r.out, " ")
	ok := r.code == code
	for _, text := range texts {
		ok = ok && strings.Contains(flat, text)
	}
	if !ok {
		s.Fatalf("exit %d, want %d and %q:\n%s", r.code, code, texts, r.out)
	}
}

var (
	idLine    = regexp.MustCompile(`ID: +([0-9a-f-]{36})`)
	tokenText = regexp.MustCompile(`fencing token (\d+)`)
)

// holderID finds the ID of the holder in what tofu says of a refused lock.
func (s *site) holderID(r result) string {
	s.Helper()
	m := idLine.FindStringSubmatch(r.out)
	if m == nil {
		s.Fatalf("no ID of a lock in:\n%s", r.out)
	}
	return m[1]
}

func (s *site) command(args ...string) string {
	s.Helper()
	b, err := exec.Command(s.fencelock, append(args, "--url", s.storeURL())...).CombinedOutput()
	if err != nil {
		s.Fatalf("fencelock %s: %v\n%s", strings.Join(args, " "), err, b)
	}
	return string(b)
}

// stateHas wants text in the state as p gets it.
func (p *person) stateHas(text string) {
	p.Helper()
	p.want(0, p.run("show"), text)
}
