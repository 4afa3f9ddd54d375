//go:build unix

package languages

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/internal/testserver"
)

// bin is the folder of the command under test.
var bin string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	var err error
	if bin, err = os.MkdirTemp("", "fencelock-languages-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(bin)
	build := exec.Command("go", "build", "-o", bin, ".")
	build.Dir = "../../cmd/fencelock"
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building the command: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// start runs a program with the command in its PATH and a SQLite file as the store.
func start(t *testing.T, store string, args ...string) *exec.Cmd {
	t.Helper()
	if args[0] == "fencelock" {
		args[0] = filepath.Join(bin, args[0])
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"), "FENCELOCK_URL=sqlite://"+store, "PYTHONDONTWRITEBYTECODE=1")
	cmd.Stdout = new(bytes.Buffer)
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatalf("%s: %v; install it to run this test", args[0], err)
	}
	return cmd
}

func TestPythonNodeAndShellExcludeEachOther(t *testing.T) {
	store := filepath.Join(t.TempDir(), "locks.db")
	const rounds = 8
	seen := filepath.Join(t.TempDir(), "seen")
	shell := fmt.Sprintf(`for i in $(seq %d); do
		fencelock run shared -- sh -c 'echo "enter shell $FENCELOCK_TOKEN" >>"$0"; sleep 0.02
			echo "leave shell $FENCELOCK_TOKEN" >>"$0"' "$0" || exit
	done`, rounds)
	all := []*exec.Cmd{
		start(t, store, "python3", "worker.py", "python", strconv.Itoa(rounds), seen),
		start(t, store, "node", "worker.mjs", "node", strconv.Itoa(rounds), seen),
		start(t, store, "sh", "-c", shell, seen),
	}
	for _, cmd := range all {
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v\n%s", cmd.Args[0], err, cmd.Stdout)
		}
	}
	text, err := os.ReadFile(seen)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if len(lines) != 2*rounds*len(all) {
		t.Fatalf("%d lines, want %d:\n%s", len(lines), 2*rounds*len(all), text)
	}
	var last int64
	for i := 0; i < len(lines); i += 2 {
		enter, ok := strings.CutPrefix(lines[i], "enter ")
		if !ok || lines[i+1] != "leave "+enter {
			t.Fatalf("two were inside at once: %q is followed by %q", lines[i], lines[i+1])
		}
		token, err := strconv.ParseInt(strings.Fields(enter)[1], 10, 64)
		if err != nil || token <= last {
			t.Fatalf("the token of %q does not rise above %d", enter, last)
		}
		last = token
	}
}

func TestRefusedLockIsAnErrorWithItsCode(t *testing.T) {
	store := filepath.Join(t.TempDir(), "locks.db")
	python := `
import subprocess
from lock import lock
with lock("taken"):
    try:
        with lock("taken", "-n"):
            print("entered twice")
    except subprocess.CalledProcessError as error:
        print("code", error.returncode)
with lock("taken", "-n"):
    print("free again")
`
	node := `
import { withLock } from "./lock.mjs";
await withLock("taken", [], async () => {
  await withLock("taken", ["-n"], async () => console.log("entered twice")).catch((e) => console.log("code", e.code));
});
await withLock("taken", ["-n"], async () => console.log("free again"));
`
	for _, args := range [][]string{{"python3", "-c", python}, {"node", "--input-type=module", "-e", node}} {
		cmd := start(t, store, args...)
		err := cmd.Wait()
		out := cmd.Stdout.(*bytes.Buffer).String()
		if err != nil || !strings.Contains(out, "code 75") || !strings.Contains(out, "free again") || strings.Contains(out, "entered twice") {
			t.Errorf("%s: %v\n%s", args[0], err, out)
		}
	}
}

// A program that holds the lock is told when it is lost, and one that is killed leaves none.
func TestProgramIsToldThatItsLockIsLost(t *testing.T) {
	python := `
import signal, sys, time
from lock import lock
signal.signal(signal.SIGTERM, lambda *_: sys.exit("told"))
with lock("lost") as token:
    print(token, flush=True)
    time.sleep(1000)
`
	node := `
import { withLock } from "./lock.mjs";
process.on("SIGTERM", () => { console.error("told"); process.exit(1); });
await withLock("lost", [], async (token) => {
  console.log(token);
  await new Promise((resolve) => setTimeout(resolve, 1e6));
});
`
	for name, args := range map[string][]string{
		"python": {"python3", "-c", python}, "node": {"node", "--input-type=module", "-e", node},
	} {
		for _, how := range []string{"broken", "killed"} {
			t.Run(name+" "+how, func(t *testing.T) {
				t.Parallel()
				store := filepath.Join(t.TempDir(), "locks.db")
				fencelock := func(args ...string) *exec.Cmd {
					return start(t, store, append([]string{"fencelock"}, args...)...)
				}
				out := filepath.Join(t.TempDir(), "out")
				cmd := start(t, store, append([]string{"sh", "-c", `exec "$@" >"$0"`, out}, args...)...)
				defer cmd.Process.Kill()
				token := ""
				testserver.Eventually(t, time.Minute, "the lock has a token", func() bool {
					text, _ := os.ReadFile(out)
					token = strings.TrimSpace(string(text))
					return token != ""
				})
				if how == "killed" {
					_ = cmd.Process.Kill()
				} else if err := fencelock("break", "lost", "--yes", "--token", token).Wait(); err != nil {
					t.Errorf("the lock with token %q was not broken: %v", token, err)
				}
				err := cmd.Wait()
				said := cmd.Stdout.(*bytes.Buffer).String()
				if told := strings.Contains(said, "told"); err == nil || told != (how == "broken") {
					t.Errorf("%v\n%s", err, said)
				}
				if err := fencelock("wait", "-w", "50", "lost").Wait(); err != nil {
					t.Errorf("the lock is held: %v", err)
				}
			})
		}
	}
}
