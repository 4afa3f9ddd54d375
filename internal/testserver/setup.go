package testserver

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// program looks a program up in PATH, and where packages put it. Of the versions of
// PostgreSQL that Debian keeps side by side it takes the newest.
func program(name string) string {
	folders, _ := filepath.Glob("/usr/lib/postgresql/[1-9][0-9]/bin")
	slices.Reverse(folders)
	folders = append(folders,
		"/usr/sbin", "/usr/local/sbin", "/usr/libexec", "/usr/pgsql/bin", "/usr/local/bin", "/opt/homebrew/bin")
	for _, f := range slices.Insert(folders, 0, "") {
		if path, err := exec.LookPath(filepath.Join(f, name)); err == nil {
			return path
		}
	}
	return name
}

// install runs a program that makes what a server needs before its first start.
func (s *Server) install(name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Dir = s.dir
	if err := runAs(cmd, s.kind.users, s.dir); err != nil {
		return err
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w; it says:\n%s", filepath.Base(name), err, bytes.TrimSpace(out))
	}
	return nil
}

// address is the URL of the server, with the password if there is one.
func (s *Server) address(scheme, user, path string) *url.URL {
	u := &url.URL{Scheme: scheme, Host: s.Addr(), Path: path}
	switch {
	case s.opts.password != "":
		u.User = url.UserPassword(user, s.opts.password)
	case user != "":
		u.User = url.User(user)
	}
	return u
}

// exchange connects to the server, sends a request, and reads the answer. It ends with ctx, if
// that has a deadline.
func (s *Server) exchange(
	ctx context.Context, request string, read func(io.Reader) ([]byte, error),
) (answer string, err error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", s.Addr())
	if err != nil {
		return "", err
	}
	defer c.Close()
	end, _ := ctx.Deadline()
	if err := c.SetDeadline(end); err != nil {
		return "", err
	}
	if _, err := io.WriteString(c, request); err != nil {
		return "", err
	}
	b, err := read(c)
	return string(b), err
}

// beginning reads what comes first: 5 bytes at least.
func beginning(r io.Reader) ([]byte, error) {
	b := make([]byte, 4096)
	n, err := io.ReadAtLeast(r, b, 5)
	return b[:n], err
}

// writeConfig writes lines, and then those of Config, into a file of the server's folder.
func (s *Server) writeConfig(name string, lines ...string) error {
	text := strings.Join(append(lines, s.opts.config...), "\n") + "\n"
	return os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600)
}

// spawn starts the process.
func (s *Server) spawn() (*child, error) {
	log, err := os.OpenFile(s.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(s.kind.program, s.kind.args(s)...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.dir, log, log
	cmd.Env = append(os.Environ(), s.opts.env...)
	if err := runAs(cmd, s.kind.users, s.dir); err != nil {
		return nil, err
	}
	done, err := Spawn(cmd)
	return &child{cmd.Process, done}, err
}

// Spawn starts a process, and waits for it: done is closed when it has ended. On Linux the
// kernel kills the process when the thread that started it ends, so the goroutine keeps
// its thread.
func Spawn(cmd *exec.Cmd) (done <-chan struct{}, err error) {
	dieWithParent(cmd)
	ended, started := make(chan struct{}), make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(ended)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // cmd.ProcessState says how it ended
		}
	}()
	return ended, <-started
}
