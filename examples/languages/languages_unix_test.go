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
		( token=$(fencelock hold shared --fd 9 --print-token) || exit
		  echo "enter shell $token" >>"$0"; sleep 0.02; echo "leave shell $token" >>"$0" ) 9>>"$0.lock" || exit
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
