//go:build unix

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/fencelock/fencelock/internal/testserver"
)

// binary is the program under test, built once per run of the tests. raced is the same, in make verify with
// the race detector: for the scripts only, because it is too slow for what is measured elsewhere. Sixteen scripts
// at once on a busy machine are slower than the two seconds of a try even so.
var binary, raced string

// unraced is as in scripts/tests.bash: with other flags all would be compiled once more.
var unraced = []string{"-gcflags=modernc.org/...=-race=false", "-gcflags=github.com/go-zookeeper/...=-race=false"}

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	if slices.Contains(os.Args, "-test.fuzzworker") {
		return m.Run() // runs no program: the time that is given for fuzzing is not spent on building
	}
	if signal.Ignored(os.Interrupt) {
		// A shell without job control ignores it for what it starts in the background, and programs inherit that.
		// A process that is notified passes on the default.
		signal.Notify(make(chan os.Signal, 1), os.Interrupt)
	}
	dir, err := os.MkdirTemp("", "fencelock-test-*")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "fencelock")
	raced = binary
	if raceEnabled && verifying {
		raced = filepath.Join(dir, "race", "fencelock")
		// Else every process waits a second before it ends.
		os.Setenv("GORACE", "atexit_sleep_ms=0 "+os.Getenv("GORACE"))
	}
	for _, args := range [][]string{{"-o", binary}, append([]string{"-race", "-o", raced}, unraced...)} {
		if args[0] == "-race" && raced == binary {
			continue
		}
		if out, err := exec.Command("go", append(append([]string{"build"}, args...), ".")...).CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "building fencelock: %v\n%s", err, out)
			return 1
		}
	}
	// What the tests run under must not change what they find.
	for _, name := range []string{envURL, envPassword, envHeld, envWithheld, envName, envToken, envOwner, "XDG_STATE_HOME"} {
		os.Unsetenv(name)
	}
	for _, name := range []string{"GOCACHE", "GOMODCACHE"} { // they depend on HOME
		out, err := exec.Command("go", "env", name).Output()
		if err != nil {
			fmt.Fprintf(os.Stderr, "go env %s: %v\n", name, err)
			return 1
		}
		os.Setenv(name, strings.TrimSpace(string(out)))
	}
	os.Setenv("HOME", dir)
	heedSignals()
	testserver.Parallel(16)
	return m.Run()
}

// patience is how long a test waits for what must happen. It is no measurement: a
// busy machine may take long.
const patience = 3 * time.Minute

// eventually waits until ok says so.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	testserver.Eventually(t, patience, what, ok)
}

// buffer is a bytes.Buffer for several goroutines.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// proc is a running program.
type proc struct {
	t    testing.TB
	cmd  *exec.Cmd
	out  buffer // stdout
	err  buffer // stderr
	done chan struct{}
}

// stage is where a test runs programs: a store of locks, and a folder.
type stage struct {
	t   testing.TB
	url string
	dir string
	env []string // of its programs, as NAME=value, on top of that of the test

	procs []*proc // that it has started

	terminal bool // there is one, on which programs run
}

func newStage(t testing.TB, url string, env ...string) *stage {
	return &stage{t: t, url: url, dir: t.TempDir(), env: env}
}

// sqliteStage keeps locks in a file of its own.
func sqliteStage(t testing.TB) *stage {
	s := newStage(t, "")
	s.url = "sqlite://" + filepath.Join(s.dir, "locks.db")
	return s
}

// onEach runs f on a fresh store that tells who waits, and in make verify on one that does not, too. Other
// tests have that one only.
func onEach(t *testing.T, f func(t *testing.T, s *stage)) {
	if verifying {
		t.Run("sqlite", func(t *testing.T) { t.Parallel(); f(t, sqliteStage(t)) })
	}
	t.Run("redis", func(t *testing.T) { t.Parallel(); f(t, newStage(t, testserver.Redis(t).URL())) })
}

func (s *stage) path(name string) string { return filepath.Join(s.dir, name) }

// write makes a file.
func (s *stage) write(name, text string) {
	s.t.Helper()
	must(s.t, os.WriteFile(s.path(name), []byte(text), 0o600))
}

func (s *stage) touch(name string) { s.write(name, "") }

// read returns the contents of a file of the stage, or "".
func (s *stage) read(name string) string {
	b, _ := os.ReadFile(s.path(name))
	return string(b)
}

// start starts a program that ends with the test. fencelock means the program under
// test.
func (s *stage) start(name string, args ...string) *proc {
	s.t.Helper()
	return s.command(name, args...).begin()
}

// begin starts the program of command. It ends with the test.
func (p *proc) begin() *proc {
	p.t.Helper()
	must(p.t, p.cmd.Start())
	go func() {
		_ = p.cmd.Wait()
		close(p.done)
	}()
	p.t.Cleanup(func() {
		p.signal("CONT")
		p.signal("KILL")
		<-p.done
	})
	return p
}

func (s *stage) command(name string, args ...string) *proc {
	if name == "fencelock" {
		name = binary
	}
	p := &proc{t: s.t, cmd: exec.Command(name, args...), done: make(chan struct{})}
	p.cmd.Dir = s.dir
	p.cmd.Env = append(os.Environ(), envURL+"="+s.url, "PATH="+filepath.Dir(binary)+":"+os.Getenv("PATH"))
	p.cmd.Env = append(p.cmd.Env, s.env...)
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.err
	// A grandchild that holds the pipe must not keep Wait from returning.
	p.cmd.WaitDelay = time.Second
	s.procs = append(s.procs, p)
	return p
}

// run runs a program to its end and returns its exit code.
func (s *stage) run(name string, args ...string) (code int, p *proc) {
	s.t.Helper()
	p = s.start(name, args...)
	return p.wait(), p
}

// wants runs fencelock and wants that exit code.
func (s *stage) wants(code int, args ...string) *proc {
	s.t.Helper()
	p := s.start("fencelock", args...)
	p.wantExit(code)
	return p
}

// What a holder may run.
const (
	longRun   = "exec sleep 1000"
	untilTold = "until [ -e enough ]; do sleep 0.02; done"
)

// runs starts a run with these flags that holds n while a shell runs script. It waits until script has written a
// process id to the file pid.
func (s *stage) runs(script string, flags ...string) (holder *proc, pid int) {
	s.t.Helper()
	holder = s.start("fencelock", slices.Concat([]string{"run"}, flags, []string{"n", "--", "sh", "-c", script})...)
	return holder, s.pid("pid")
}

// holds is runs of a script that may be told at any time.
func (s *stage) holds(script string, flags ...string) *proc {
	s.t.Helper()
	p, _ := s.runs("echo $$ >pid; "+script, flags...)
	return p
}

// waits starts a run that waits for n, as the n-th of the line.
func (s *stage) waits(n int, flags ...string) *proc {
	s.t.Helper()
	p := s.start("fencelock", slices.Concat([]string{"run"}, flags, []string{"n", "--", "touch", "ran"})...)
	eventually(s.t, "it waits", func() bool { return strings.Contains(s.must("ls"), fmt.Sprint("waits #", n)) })
	return p
}

// must runs fencelock and wants it to succeed.
func (s *stage) must(args ...string) string {
	s.t.Helper()
	code, p := s.run("fencelock", args...)
	if code != 0 {
		s.t.Fatalf("fencelock %s: exit %d\n%s", strings.Join(args, " "), code, p.err.String())
	}
	return p.out.String()
}

// wait returns the exit code, 128+N after signal N.
func (p *proc) wait() int {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	select {
	case <-p.done:
	case <-ctx.Done():
		p.t.Fatalf("%v does not end\nstdout: %s\nstderr: %s", p.cmd.Args, p.out.String(), p.err.String())
	}
	return exitCode(p.cmd.ProcessState)
}

// wantExit wants it to end with that code.
func (p *proc) wantExit(code int) {
	p.t.Helper()
	if got := p.wait(); got != code {
		p.t.Errorf("%v: exit %d, want %d: %s", p.cmd.Args[1:], got, code, p.err.String())
	}
}

func (p *proc) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// says waits until it has said all parts on stderr.
func (p *proc) says(parts ...string) {
	p.t.Helper()
	eventually(p.t, fmt.Sprintf("%v says %q", p.cmd.Args[1:], parts), func() bool {
		text := p.err.String()
		return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(text, part) })
	})
}

// wantLine wants exactly one line of fencelock's own on stderr, with all parts, beside those of
// one who waits.
func (p *proc) wantLine(parts ...string) {
	p.t.Helper()
	var own []string
	for line := range strings.Lines(p.err.String()) {
		waits := strings.HasPrefix(line, "fencelock: waiting for ") || strings.Contains(line, "; asking again")
		if strings.HasPrefix(line, "fencelock: ") && !waits {
			own = append(own, line)
		}
	}
	if len(own) != 1 {
		p.t.Errorf("%v printed %d lines of its own, want 1:\n%s", p.cmd.Args, len(own), p.err.String())
		return
	}
	for _, part := range parts {
		if !strings.Contains(own[0], part) {
			p.t.Errorf("%v printed %q, which lacks %q", p.cmd.Args, own[0], part)
		}
	}
}

// TestScripts runs the scripts in testdata, each in a folder of its own.
//
//verify:fault Security | passwords appear in no error, no report and no child process | /secrets
func TestScripts(t *testing.T) {
	t.Parallel()
	cmds := maps.Clone(serverCmds)
	cmds["postgres"], cmds["sql"], cmds["exits"], cmds["until"] = startPostgres, runSQL, exits, until
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		RequireExplicitExec: true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("PATH", filepath.Dir(raced)+string(os.PathListSeparator)+e.Getenv("PATH"))
			e.Setenv("GORACE", os.Getenv("GORACE"))
			e.Setenv("HOME", filepath.Join(e.WorkDir, "home"))
			e.Setenv(envURL, "sqlite://"+filepath.Join(e.WorkDir, "locks.db"))
			return os.Mkdir(filepath.Join(e.WorkDir, "home"), 0o700)
		},
		Cmds:          cmds,
		UpdateScripts: os.Getenv("UPDATE_SCRIPTS") != "",
	})
}

// exits CODE PROGRAM [ARG...] runs a program and wants that exit code.
func exits(ts *testscript.TestScript, _ bool, args []string) {
	err := ts.Exec(args[1], args[2:]...)
	code := 0
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		code = exitCode(exit.ProcessState)
	case err != nil:
		ts.Fatalf("%v", err)
	}
	if fmt.Sprint(code) != args[0] {
		ts.Fatalf("exit %d, want %s", code, args[0])
	}
}

// serverCmd makes the command NAME [ARG...] of scripts, which starts a server and puts
// host:port into the variable NAME.
func serverCmd(start func(ctx context.Context, dir string, args []string) (*testserver.Server, error),
) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, _ bool, args []string) {
		dir, err := os.MkdirTemp(ts.Getenv("WORK"), "server-*")
		ts.Check(err)
		server, err := start(context.Background(), dir, args[1:])
		ts.Check(err)
		ts.Defer(func() { _ = server.Stop() })
		ts.Setenv(args[0], server.Addr())
	}
}

// serverCmds are those of the stores that the scripts use.
var serverCmds = map[string]func(*testscript.TestScript, bool, []string){
	// NAME [PASSWORD]
	"redis": serverCmd(func(ctx context.Context, dir string, args []string) (*testserver.Server, error) {
		return testserver.StartRedis(ctx, dir, passwords(args)...)
	}),
	// NAME PASSWORD
	"mariadb": serverCmd(func(ctx context.Context, dir string, args []string) (*testserver.Server, error) {
		return testserver.StartMariaDB(ctx, dir, passwords(args)...)
	}),
	"etcd": serverCmd(func(ctx context.Context, dir string, _ []string) (*testserver.Server, error) {
		return testserver.StartEtcd(ctx, dir)
	}),
	// NAME [LIMIT], which is how many connections one host may have.
	"zookeeper": serverCmd(func(ctx context.Context, dir string, args []string) (*testserver.Server, error) {
		return testserver.StartZooKeeper(ctx, dir, testserver.Config("maxClientCnxns="+append(args, "60")[0]))
	}),
}

func passwords(args []string) (opts []testserver.Option) {
	for _, password := range args {
		opts = append(opts, testserver.Password(password))
	}
	return opts
}

// postgres NAME POOLER PASSWORD starts a server and a PgBouncer in front of it, and puts
// host:port of each into the variables.
func startPostgres(ts *testscript.TestScript, neg bool, args []string) {
	var server *testserver.Server
	serverCmd(func(ctx context.Context, dir string, _ []string) (_ *testserver.Server, err error) {
		server, err = testserver.StartPostgres(ctx, dir, testserver.Password(args[2]))
		return server, err
	})(ts, neg, args[:1])
	serverCmd(func(ctx context.Context, dir string, _ []string) (*testserver.Server, error) {
		return testserver.StartPgBouncer(ctx, dir, server)
	})(ts, neg, args[1:2])
}

// sql URL STATEMENT... changes a PostgreSQL database.
func runSQL(ts *testscript.TestScript, _ bool, args []string) {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, args[0])
	ts.Check(err)
	defer conn.Close(ctx)
	for _, statement := range args[1:] {
		_, err := conn.Exec(ctx, statement)
		ts.Check(err)
	}
}

// until PROGRAM [ARG...] runs a program again and again until it succeeds.
func until(ts *testscript.TestScript, neg bool, args []string) {
	late := time.After(patience)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for (ts.Exec(args[0], args[1:]...) == nil) == neg {
		select {
		case <-tick.C:
		case <-late:
			ts.Fatalf("waited in vain for %q", args)
		}
	}
}
