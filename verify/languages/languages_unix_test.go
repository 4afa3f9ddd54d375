//go:build unix

package languages

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/drivertest/steps"
)

const (
	clients = "../../clients"
	list    = clients + "/conformance/cases.json"
)

// command is the fencelock under test.
var command string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	flag.Parse()
	// The runners wait for leases most of the time, so all run at once.
	if err := flag.Set("test.parallel", strconv.Itoa(len(runners))); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	folder, err := os.MkdirTemp("", "fencelock-languages-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(folder)
	command = filepath.Join(folder, "fencelock")
	build := exec.Command("go", "build", "-o", command, ".")
	build.Dir = "../../cmd/fencelock"
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building the command: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// runner is a program that plays the list.
type runner struct {
	name  string
	part  int // if not 0, how many cases it plays at least, instead of all
	start func(t *testing.T) *exec.Cmd

	// plays has the names under which it says what it played, and the needs of cases that it has there.
	plays map[string][]string
}

var runners = []runner{
	{
		name: "python", plays: map[string][]string{"Client": {"renewal"}},
		start: python("tests.protocol", "tests.blocks", "tests.forks", "tests.releases",
			"tests.conformance.Blocking"),
	},
	{
		name:  "asyncio",
		plays: map[string][]string{"AsyncClient": {"renewal", "cancel"}},
		start: python("tests.conformance.Asyncio"),
	},
	{
		name:  "typescript",
		plays: map[string][]string{"Client": {"renewal", "cancel"}}, start: startTypeScript,
	},
	{
		name: "sh", plays: map[string][]string{"sh": nil}, part: 7,
		start: func(*testing.T) *exec.Cmd { return exec.Command("sh", clients+"/sh/conformance.sh") },
	},
}

// python runs tests in a process whose wall clock is an hour off, now ahead and now behind.
func python(tests ...string) func(*testing.T) *exec.Cmd {
	const begin = "import random, time, unittest; now = time.time; " +
		"time.time = lambda: now() + random.choice((-3600, 3600)); unittest.main(module=None)"
	return func(*testing.T) *exec.Cmd {
		cmd := exec.Command("python3", append([]string{"-W", "error", "-c", begin}, tests...)...)
		cmd.Dir = clients + "/python"
		cmd.Env = []string{"PYTHONDONTWRITEBYTECODE=1"}
		return cmd
	}
}

// startTypeScript compiles a copy of the client, for the tree keeps neither packages nor output.
func startTypeScript(t *testing.T) *exec.Cmd {
	folder := t.TempDir()
	for _, part := range []string{"src", "test"} {
		steps.Must(t, os.CopyFS(filepath.Join(folder, part), os.DirFS(clients+"/typescript/"+part)))
	}
	for _, name := range []string{"package.json", "package-lock.json", "tsconfig.json"} {
		text, err := os.ReadFile(filepath.Join(clients, "typescript", name))
		steps.Must(t, err)
		steps.Must(t, os.WriteFile(filepath.Join(folder, name), text, 0o600))
	}
	for _, args := range [][]string{
		{"npm", "ci", "--prefer-offline", "--ignore-scripts", "--no-audit", "--no-fund"}, {"npx", "--no-install", "tsc"},
	} {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Dir = folder
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	cmd := exec.Command("node", "--test", "--test-reporter=tap", "dist/test/")
	cmd.Dir = folder
	return cmd
}

func TestEveryLanguagePlaysTheList(t *testing.T) {
	cases := readCases(t)
	for _, r := range runners {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			played := r.play(t)
			for _, c := range cases {
				for label, has := range r.plays {
					line := label + ": " + c.Name
					if r.part == 0 && c.within(has) && !slices.Contains(played, line) {
						t.Errorf("not played: %s", line)
					}
				}
			}
			for _, line := range played {
				_, name, _ := strings.Cut(line, ": ")
				if !slices.ContainsFunc(cases, func(c listed) bool { return c.Name == name }) {
					t.Errorf("played %q, which is not in the list", name)
				}
			}
			if len(played) < r.part {
				t.Errorf("played %d cases, want %d", len(played), r.part)
			}
		})
	}
}

// play runs the runner against a server of its own, and returns what it says that it played.
func (r *runner) play(t *testing.T) []string {
	cmd := r.start(t)
	server := startServer(t)
	proxy := httptest.NewServer(newFaults(server.url))
	t.Cleanup(proxy.Close)
	file, err := filepath.Abs(list)
	steps.Must(t, err)
	cmd.Env = append(cmd.Env, os.Environ()...)
	cmd.Env = append(cmd.Env, "CONFORMANCE_CASES="+file, "CONFORMANCE_SERVER="+server.url,
		"CONFORMANCE_FAULTS="+proxy.URL, "CONFORMANCE_PID="+strconv.Itoa(server.pid))
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Errorf("%s: %v\n%s%s\nthe server says:\n%s", strings.Join(cmd.Args, " "), err, &out, &errs, server.log.end())
	}
	var played []string
	for line := range strings.Lines(out.String()) {
		if name, ok := strings.CutPrefix(strings.TrimLeft(line, "# "), "played "); ok {
			played = append(played, strings.TrimSpace(name))
		}
	}
	return played
}

// listed is what this test reads of a case.
type listed struct {
	Name  string   `json:"name"`
	Needs []string `json:"needs"`
}

// within reports whether has covers the needs of the case.
func (c listed) within(has []string) bool {
	return !slices.ContainsFunc(c.Needs, func(need string) bool { return !slices.Contains(has, need) })
}

func readCases(t *testing.T) []listed {
	text, err := os.ReadFile(list)
	steps.Must(t, err)
	var all struct {
		Cases []listed `json:"cases"`
	}
	steps.Must(t, json.Unmarshal(text, &all))
	if len(all.Cases) < 20 {
		t.Fatalf("the list has %d cases; this test reads it wrongly", len(all.Cases))
	}
	return all.Cases
}
