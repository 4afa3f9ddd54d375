// Package testserver runs real servers for tests: a child process in a folder
// of its own, on a free loopback port, that ends with the test.
//
// It needs nothing but the standard library, and speaks just enough of each
// server's protocol to know when the server answers. There is one file per
// kind of server; this one holds what they share.
package testserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// TB is what testserver needs of a *testing.T. A command that is no test uses
// the Start functions instead, and stops its servers itself.
type TB interface {
	Helper()
	Failed() bool
	Logf(format string, args ...any)
	Fatalf(format string, args ...any)
	Cleanup(func())
	TempDir() string
}

// patience is how long a server may take to answer its first question or to end
// after it was asked to. Loading a large file on a busy machine takes seconds.
const patience = 2 * time.Minute

// kind says how one kind of server is run.
type kind struct {
	name    string                                     // as shown in messages
	program string                                     // looked up in PATH
	install string                                     // what to do when it is not there
	prepare func(s *Server) error                      // writes what it needs before each start; may be nil
	args    func(s *Server) []string                   // its command line
	ready   func(ctx context.Context, s *Server) error // nil once the server answers questions
	url     func(s *Server) string
	quit    os.Signal // ends it at once, where a kill would leave something behind
	keeps   bool      // its data stays without Persist, too
	users   []string  // whom root runs it as: the first that there is; empty means root
	ports   []*port   // the first is for clients; nil for one that is taken at the start
}

// Server is a server that runs as a child of this process. Its methods may be
// called from any goroutine, but not at the same time as Restart or Stop.
type Server struct {
	kind kind
	dir  string
	port int
	opts options

	mu    sync.Mutex
	child *child // nil when it does not run
}

// child is one run of the program.
type child struct {
	process *os.Process
	done    <-chan struct{} // closed when the process has ended and was waited for
}

// options are what an Option sets. Kinds ignore what they do not know.
type options struct {
	config   []string
	env      []string
	password string
	persist  bool
}

// Option changes how a server is run.
type Option func(*options)

// Config adds lines to the server's configuration file. A later line wins.
func Config(lines ...string) Option {
	return func(o *options) { o.config = append(o.config, lines...) }
}

// Env adds variables to the environment of the server's process, each as name=value.
func Env(variables ...string) Option {
	return func(o *options) { o.env = append(o.env, variables...) }
}

// Password makes the server ask for a password.
func Password(p string) Option { return func(o *options) { o.password = p } }

// Persist says whether what the server acknowledged is there again after Kill
// and Restart. Without it, each start begins empty.
func Persist(yes bool) Option { return func(o *options) { o.persist = yes } }

// start runs a server of this kind in dir, which must exist and belong to it
// alone, and returns when it answers.
func start(ctx context.Context, k kind, dir string, opts []Option) (*Server, error) {
	if k.ports == nil {
		var err error
		if k.ports, err = takePorts(1); err != nil {
			return nil, err
		}
	}
	k.program = program(k.program)
	s := &Server{kind: k, dir: dir, port: k.ports[0].number}
	for _, o := range opts {
		o(&s.opts)
	}
	if err := s.run(ctx); err != nil {
		freePorts(k.ports)
		return nil, err
	}
	return s, nil
}

// inFolder returns how to start a server of a kind in dir, which must exist and be empty or
// left by an earlier server. The caller stops the server.
func inFolder(find func() (kind, error)) func(ctx context.Context, dir string, opts ...Option) (*Server, error) {
	return func(ctx context.Context, dir string, opts ...Option) (*Server, error) {
		k, err := find()
		if err != nil {
			return nil, err
		}
		return start(ctx, k, dir, opts)
	}
}

// forTest returns how to start a server of a kind for a test, which fails if the program is
// missing.
func forTest(find func() (kind, error)) func(tb TB, opts ...Option) *Server {
	return func(tb TB, opts ...Option) *Server {
		tb.Helper()
		s, err := inFolder(find)(context.Background(), tb.TempDir(), opts...)
		if err != nil {
			tb.Fatalf("%v", err)
		}
		return attach(tb, s)
	}
}

func always(k kind) func() (kind, error) { return func() (kind, error) { return k, nil } }

// startTogether starts servers of which none answers before most of them run. What they
// have acknowledged is there again after Kill and Restart.
func startTogether(tb TB, kinds []kind, opts []Option) []*Server {
	tb.Helper()
	all, errs := make([]*Server, len(kinds)), make([]error, len(kinds))
	var group sync.WaitGroup
	for i, k := range kinds {
		dir := tb.TempDir()
		group.Go(func() {
			all[i], errs[i] = start(context.Background(), k, dir, append([]Option{Persist(true)}, opts...))
		})
	}
	group.Wait()
	for _, s := range all {
		if s != nil {
			attach(tb, s)
		}
	}
	if err := errors.Join(errs...); err != nil {
		tb.Fatalf("%v", err)
	}
	return all
}

// attach ties s to a test.
func attach(tb TB, s *Server) *Server {
	tb.Helper()
	tb.Cleanup(func() {
		if err := s.Stop(); err != nil {
			tb.Logf("%v", err)
		}
		if tb.Failed() {
			tb.Logf("log of %s on %s:\n%s", s.kind.name, s.Addr(), s.Log())
		}
	})
	return s
}

// Addr returns host:port.
func (s *Server) Addr() string { return fmt.Sprintf("127.0.0.1:%d", s.port) }

// URL returns the address in the form that clients of this kind of server take,
// with the password if there is one.
func (s *Server) URL() string { return s.kind.url(s) }

// Dir returns the folder in which the server keeps its files.
func (s *Server) Dir() string { return s.dir }

// Log returns what the server has printed, over all its starts.
func (s *Server) Log() string {
	b, err := os.ReadFile(s.logFile())
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// LogName is the file in the folder of a server that has its log.
const LogName = "server.log"

func (s *Server) logFile() string { return filepath.Join(s.dir, LogName) }

// Pid returns the process id, or 0 if the server does not run.
func (s *Server) Pid() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.child == nil {
		return 0
	}
	return s.child.process.Pid
}

// Done is closed when the server has ended by itself. It is nil after Kill and Stop.
func (s *Server) Done() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.child == nil {
		return nil
	}
	return s.child.done
}

// Kill ends the server as kill -9 does, and returns when it has ended.
func (s *Server) Kill() error {
	s.mu.Lock()
	c := s.child
	s.child = nil
	s.mu.Unlock()
	if c == nil {
		return nil
	}
	if err := c.process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("killing %s: %w", s.kind.name, err)
	}
	<-c.done
	return nil
}

// Stop ends the server for good, and frees its port. Stopping twice is fine.
func (s *Server) Stop() error {
	defer freePorts(s.kind.ports)
	s.mu.Lock()
	c := s.child
	s.mu.Unlock()
	if c != nil && s.kind.quit != nil && c.process.Signal(s.kind.quit) == nil {
		_ = resume(c.process) // or it would not hear
		select {
		case <-c.done:
		case <-time.After(patience):
		}
	}
	return s.Kill()
}

// Restart kills the server if it runs, and starts it again on the same port and in the
// same folder, with more options. It returns when the server answers.
func (s *Server) Restart(opts ...Option) error {
	for _, o := range opts {
		o(&s.opts)
	}
	if err := s.Kill(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return s.run(ctx)
}

// Pause stops the server and the processes that it has started with SIGSTOP, and returns
// when the server stands. Connections stay open and nothing answers.
func (s *Server) Pause() error {
	return s.signal("pausing", func(p *os.Process) error {
		if err := pause(p); err != nil {
			return err
		}
		return errors.Join(AwaitStop(p.Pid), eachChild(p.Pid, Pause))
	})
}

// Continue lets a paused server go on.
func (s *Server) Continue() error {
	return s.signal("continuing", func(p *os.Process) error {
		return errors.Join(eachChild(p.Pid, Resume), resume(p))
	})
}

func (s *Server) signal(doing string, send func(*os.Process) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.child == nil {
		return fmt.Errorf("%s %s: it does not run", doing, s.kind.name)
	}
	if err := send(s.child.process); err != nil {
		return fmt.Errorf("%s %s: %w", doing, s.kind.name, err)
	}
	return nil
}

// MissingError says that the program of a server is not installed.
type MissingError struct {
	Program string
	install string // what to do
}

func (e *MissingError) Error() string { return e.Program + " is not installed: " + e.install }

// run starts the program once and waits until it answers.
func (s *Server) run(ctx context.Context) error {
	if _, err := exec.LookPath(s.kind.program); err != nil {
		return &MissingError{s.kind.program, s.kind.install}
	}
	if !s.kind.keeps && !s.opts.persist {
		if err := os.RemoveAll(filepath.Join(s.dir, "data")); err != nil {
			return err
		}
	}
	if s.kind.prepare != nil {
		if err := s.kind.prepare(s); err != nil {
			return err
		}
	}
	c, err := s.spawn()
	if err != nil {
		return fmt.Errorf("starting %s: %w", s.kind.name, err)
	}
	s.mu.Lock()
	s.child = c
	s.mu.Unlock()

	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		once, end := context.WithTimeout(ctx, 2*time.Second)
		asked := s.kind.ready(once, s)
		end()
		if asked == nil {
			return nil
		}
		select {
		case <-c.done:
			return errors.Join(fmt.Errorf("%s ended at once; its log:\n%s", s.kind.name, s.tail()), s.Kill())
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("%s does not answer on %s: %w; its log:\n%s",
				s.kind.name, s.Addr(), asked, s.tail()), s.Kill())
		case <-tick.C:
		}
	}
}

func (s *Server) tail() string {
	text := s.Log()
	return strings.TrimSpace(text[max(0, len(text)-4096):])
}
