//go:build unix

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
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

// binary is the program under test, built once per run of the tests. raced is the same
// with the race detector, if the tests have it: for the scripts only, because it is too
// slow for what is measured elsewhere.
var binary, raced string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	if slices.Contains(os.Args, "-test.fuzzworker") {
		return m.Run() // runs no program: the time that is given for fuzzing is not spent on building
	}
	dir, err := os.MkdirTemp("", "fencelock-test-*")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "fencelock")
	raced = binary
	if raceEnabled {
		raced = filepath.Join(dir, "race", "fencelock")
		// Else every process waits a second before it ends.
		os.Setenv("GORACE", "atexit_sleep_ms=0 "+os.Getenv("GORACE"))
	}
	for _, args := range [][]string{{"-o", binary}, {"-race", "-o", raced}} {
		if args[0] == "-race" && !raceEnabled {
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
	return m.Run()
}

// patience is how long a test waits for what must happen. It is no measurement: a
// busy machine may take long.
const patience = 60 * time.Second

// eventually waits until ok says so.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	late := time.After(patience)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("waited in vain until %s", what)
		}
	}
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
}

func newStage(t testing.TB, url string) *stage { return &stage{t, url, t.TempDir()} }

// sqliteStage keeps locks in a file of its own.
func sqliteStage(t testing.TB) *stage {
	s := newStage(t, "")
	s.url = "sqlite://" + filepath.Join(s.dir, "locks.db")
	return s
}

// onEach runs f on every store, on a fresh one each.
func onEach(t *testing.T, f func(t *testing.T, s *stage)) {
	t.Run("sqlite", func(t *testing.T) { f(t, sqliteStage(t)) })
	t.Run("redis", func(t *testing.T) { f(t, newStage(t, testserver.Redis(t).URL())) })
}

func (s *stage) path(name string) string { return filepath.Join(s.dir, name) }

// touch makes an empty file.
func (s *stage) touch(name string) {
	s.t.Helper()
	if err := os.WriteFile(s.path(name), nil, 0o600); err != nil {
		s.t.Fatal(err)
	}
}

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
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
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
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.err
	// A grandchild that holds the pipe must not keep Wait from returning.
	p.cmd.WaitDelay = time.Second
	return p
}

// run runs a program to its end and returns its exit code.
func (s *stage) run(name string, args ...string) (code int, p *proc) {
	s.t.Helper()
	p = s.start(name, args...)
	return p.wait(), p
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

func (p *proc) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// wantLine wants exactly one line of fencelock's own on stderr, with all parts.
func (p *proc) wantLine(parts ...string) {
	p.t.Helper()
	var own []string
	for line := range strings.Lines(p.err.String()) {
		if strings.HasPrefix(line, "fencelock: ") {
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
func TestScripts(t *testing.T) {
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
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":     exits,
			"redis":     startRedis,
			"postgres":  startPostgres,
			"mariadb":   startMariaDB,
			"etcd":      startEtcd,
			"zookeeper": startZooKeeper,
			"until":     until,
			"sql":       runSQL,
		},
		UpdateScripts: os.Getenv("UPDATE_SCRIPTS") != "",
	})
}

// exits CODE PROGRAM [ARG...] runs a program and wants that exit code.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM [ARG...]")
	}
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

// redis NAME [PASSWORD] starts a server and puts host:port into the variable NAME.
func startRedis(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 {
		ts.Fatalf("usage: redis NAME [PASSWORD]")
	}
	var opts []testserver.Option
	if len(args) > 1 {
		opts = append(opts, testserver.Password(args[1]))
	}
	dir, err := os.MkdirTemp(ts.Getenv("WORK"), "redis-*")
	ts.Check(err)
	server, err := testserver.StartRedis(context.Background(), dir, opts...)
	ts.Check(err)
	ts.Defer(func() { _ = server.Stop() })
	ts.Setenv(args[0], server.Addr())
}

// etcd NAME starts a server and puts host:port into the variable NAME.
func startEtcd(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: etcd NAME")
	}
	dir, err := os.MkdirTemp(ts.Getenv("WORK"), "etcd-*")
	ts.Check(err)
	server, err := testserver.StartEtcd(context.Background(), dir)
	ts.Check(err)
	ts.Defer(func() { _ = server.Stop() })
	ts.Setenv(args[0], server.Addr())
}

// zookeeper NAME starts a server and puts host:port into the variable NAME.
func startZooKeeper(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: zookeeper NAME")
	}
	dir, err := os.MkdirTemp(ts.Getenv("WORK"), "zookeeper-*")
	ts.Check(err)
	server, err := testserver.StartZooKeeper(context.Background(), dir)
	ts.Check(err)
	ts.Defer(func() { _ = server.Stop() })
	ts.Setenv(args[0], server.Addr())
}

// postgres NAME POOLER PASSWORD starts a server and a PgBouncer in front of it, and puts
// host:port of each into the variables.
func startPostgres(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: postgres NAME POOLER PASSWORD")
	}
	dir, err := os.MkdirTemp(ts.Getenv("WORK"), "postgres-*")
	ts.Check(err)
	server, err := testserver.StartPostgres(context.Background(), dir, testserver.Password(args[2]))
	ts.Check(err)
	ts.Defer(func() { _ = server.Stop() })
	dir, err = os.MkdirTemp(ts.Getenv("WORK"), "pgbouncer-*")
	ts.Check(err)
	pooler, err := testserver.StartPgBouncer(context.Background(), dir, server)
	ts.Check(err)
	ts.Defer(func() { _ = pooler.Stop() })
	ts.Setenv(args[0], server.Addr())
	ts.Setenv(args[1], pooler.Addr())
}

// sql URL STATEMENT... changes a PostgreSQL database.
func runSQL(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: sql URL STATEMENT...")
	}
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, args[0])
	ts.Check(err)
	defer conn.Close(ctx)
	for _, statement := range args[1:] {
		_, err := conn.Exec(ctx, statement)
		ts.Check(err)
	}
}

// mariadb NAME PASSWORD starts a server and puts host:port into the variable NAME.
func startMariaDB(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: mariadb NAME PASSWORD")
	}
	dir, err := os.MkdirTemp(ts.Getenv("WORK"), "mariadb-*")
	ts.Check(err)
	server, err := testserver.StartMariaDB(context.Background(), dir, testserver.Password(args[1]))
	ts.Check(err)
	ts.Defer(func() { _ = server.Stop() })
	ts.Setenv(args[0], server.Addr())
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
