package quorumlock_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/fencelock/fencelock/drivertest/steps"
)

// Thousands of runs are played by processes of their own, without the race detector and on one
// processor each: a run takes a tenth of the time there.

// childVariable says to a process that it is one of those, and which seeds it plays: those
// from the first number up to the second.
const childVariable = "FENCELOCK_SIM_SEEDS"

// child is this test without the race detector. It is built once.
var child = sync.OnceValues(func() (path string, err error) {
	if !raceEnabled {
		return os.Executable()
	}
	dir, err := os.MkdirTemp("", "simulation")
	if err != nil {
		return "", err
	}
	built = dir
	path = filepath.Join(dir, "simulation.test")
	if out, err := exec.Command("go", "test", "-race=false", "-c", "-o", path, ".").CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the simulation without the race detector: %w\n%s", err, out)
	}
	return path, nil
})

var built string // the folder that it was built in, or ""

func TestMain(m *testing.M) {
	code := m.Run()
	if built != "" {
		os.RemoveAll(built)
	}
	os.Exit(code)
}

// play runs one test in a process of its own, and returns what it logs.
func play(t *testing.T, name, seeds string) string {
	t.Helper()
	path, err := child()
	steps.Must(t, err)
	cmd := exec.CommandContext(t.Context(), path, "-test.v", "-test.count=1", "-test.run=^"+name+"$")
	cmd.Env = append(os.Environ(), childVariable+"="+seeds,
		"GOMAXPROCS=1", "GOGC=400", "GODEBUG=adaptivestackstart=1") // goroutines by the million, with deep stacks
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%s with seeds %s: %v\n%s", name, seeds, err, out)
	}
	return strings.Join(regexp.MustCompile(`(?m)^ +\S+_test\.go:\d+: (.*)$`).FindAllString(string(out), -1), "\n")
}

// elsewhere runs this test in a process of its own, and reports whether it did: in that
// process itself it does not.
func elsewhere(t *testing.T) bool {
	if os.Getenv(childVariable) != "" {
		return false
	}
	t.Log(play(t, t.Name(), "0-0"))
	return true
}
