//go:build unix

package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fencelock/fencelock/drivertest/steps"
)

var updateGolden = flag.Bool("update-lab", false, "write what the lab prints to testdata")

// binary is the program under test.
var binary string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "fencelock-lab-test-*")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "fencelock-lab")
	if out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building fencelock-lab: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// result is how the program ended.
type result struct {
	code     int
	out, err string
}

// start runs the program to its end, with more in its environment.
func start(t *testing.T, args string, env ...string) result {
	t.Helper()
	cmd := exec.Command(binary, strings.Fields(args)...)
	cmd.Env = append(append(os.Environ(), "TMPDIR="+t.TempDir()), env...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	if err != nil && !errors.As(err, new(*exec.ExitError)) {
		t.Fatal(err)
	}
	return result{cmd.ProcessState.ExitCode(), out.String(), errOut.String()}
}

// The list, and the plays that never wait for a lease to end: what they print is the
// same each time, but for tokens and the seconds that are left.
func TestLabPrintsWhatIsInTheGoldenFiles(t *testing.T) {
	for name, args := range map[string]string{
		"list.en": "--lang en",
		"list.zh": "--lang zh",
		"02.en":   "2 --lang en",
		"02.zh":   "2 --lang zh",
		"10.en":   "10 --lang en",
		"10.zh":   "10 --lang zh",
		"12.en":   "12 --lang en",
		"12.zh":   "12 --lang zh",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := start(t, args)
			if r.code != 0 {
				t.Fatalf("exit %d: %s", r.code, r.err)
			}
			got := timeless(clockToken.ReplaceAllString(r.out, "1000000000000000"))
			golden := filepath.Join("testdata", name+".txt")
			if *updateGolden {
				steps.Must(t, os.WriteFile(golden, []byte(got), 0o600))
			}
			want, err := os.ReadFile(golden)
			steps.Must(t, err)
			if got != string(want) {
				t.Errorf("%s prints\n%s\nand %s has\n%s", args, got, golden, want)
			}
		})
	}
}

var (
	clockToken = regexp.MustCompile(`\b1[0-9]{15}\b`)
	secondsOf  = regexp.MustCompile(` \([0-9]+s\)`)
)

// timeless leaves out the seconds that are left: a play takes longer on a busy machine.
func timeless(s string) string { return secondsOf.ReplaceAllString(s, "") }

// A scheme whose lease ends while one watches. It leaves nothing behind, and the user's
// store is not asked.
func TestLabPlaysOneScheme(t *testing.T) {
	t.Parallel()
	tmp := t.TempDir()
	r := start(t, "4 --lang en", "TMPDIR="+tmp, "FENCELOCK_URL=redis://127.0.0.1:1")
	if r.code != 0 {
		t.Fatalf("exit %d: %s", r.code, r.err)
	}
	if strings.Count(r.err, "\n") != 1 || !strings.HasPrefix(r.err, "fencelock: starting the servers of this lab on loopback ports") {
		t.Errorf("it says %q", r.err)
	}
	for _, want := range []string{
		"4  SET NX EX, DEL\n", "\n2  ~ 30s pass, and A has not  ", "DEL lock → 1", "^^^ BROKEN I1: two are inside at once",
		"Context() → ErrExpired", "Release → ErrLost", "TryLock → held by B", "As told: the scheme breaks I1, fencelock keeps what is judged.\n",
	} {
		if !strings.Contains(r.out, want) {
			t.Errorf("lab 4 does not print %q:\n%s", want, r.out)
		}
	}
	if left, err := filepath.Glob(filepath.Join(tmp, "*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

func TestLabRefusesWhatItDoesNotKnow(t *testing.T) {
	for args, want := range map[string]string{
		"0":         `there is no scheme "0"; there are 1 to 22: see fencelock lab`,
		"99":        `there is no scheme "99"`,
		"four":      `there is no scheme "four"`,
		"1 2":       "want at most one argument, the number of a scheme, and not 2",
		"--all 3":   `--all plays every scheme; leave out "3"`,
		"--lang fr": `--lang "fr": want en or zh`,
		"--loud":    "flag provided but not defined: -loud; see fencelock lab --help",
	} {
		r := start(t, args)
		if r.code != exitUsage || r.out != "" || strings.Count(r.err, "\n") != 1 || !strings.Contains(r.err, want) {
			t.Errorf("%s: exit %d, prints %q, says %q; want %q", args, r.code, r.out, r.err, want)
		}
	}
}

// Without a server the list is there, and a play says what to install.
func TestLabSaysWhatToInstall(t *testing.T) {
	for lang, want := range map[string]string{"en": "redis-server is not installed; on Debian and Ubuntu: apt-get install redis-server", "zh": "没有安装 redis-server"} {
		nothing := "PATH=" + t.TempDir()
		if r := start(t, "4 --lang "+lang, nothing); r.code != exitConfig || r.out != "" || !strings.Contains(r.err, want) {
			t.Errorf("exit %d, prints %q, says %q", r.code, r.out, r.err)
		}
		if r := start(t, "--lang "+lang, nothing); r.code != 0 || r.out == "" {
			t.Errorf("the list needs a server: exit %d, %q", r.code, r.err)
		}
	}
}

func TestLostOutputIsAFailure(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		return // only Linux has a device that is full
	}
	for _, args := range []string{"", "--help", "2"} {
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		steps.Must(t, err)
		cmd := exec.Command(binary, strings.Fields(args)...)
		var errOut bytes.Buffer
		cmd.Stdout, cmd.Stderr = full, &errOut
		_ = cmd.Run()
		full.Close()
		code, text := cmd.ProcessState.ExitCode(), errOut.String()
		if code != exitOutput || !strings.HasSuffix(text, "the output could not be written: no space left on device\n") {
			t.Errorf("%q: exit %d, and it says %q", args, code, text)
		}
	}
}

// An interrupted lab takes its servers and its folder with it.
func TestInterruptedLabLeavesNothing(t *testing.T) {
	t.Parallel()
	tmp := t.TempDir()
	cmd := exec.Command(binary, "--all", "--lang", "en")
	cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
	out, err := cmd.StdoutPipe()
	steps.Must(t, err)
	steps.Must(t, cmd.Start())
	hang := time.AfterFunc(3*time.Minute, func() { _ = cmd.Process.Kill() })
	defer hang.Stop()
	var seen []byte
	for b := make([]byte, 4096); !strings.Contains(string(seen), "As told"); {
		n, err := out.Read(b)
		if err != nil {
			t.Fatalf("it ended before the first scheme was played: %v\n%s", err, seen)
		}
		seen = append(seen, b[:n]...)
	}
	steps.Must(t, cmd.Process.Signal(syscall.SIGINT))
	for b := make([]byte, 4096); err == nil; {
		_, err = out.Read(b)
	}
	_ = cmd.Wait()
	steps.Same(t, "exit", cmd.ProcessState.ExitCode(), 130)
	if left, err := filepath.Glob(filepath.Join(tmp, "*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}
