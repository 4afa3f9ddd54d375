package testserver

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/drivertest/steps"
)

// TestStoppedPostgresLeavesNoSharedMemory looks for what a killed server leaves to the
// system, which has room for some thousand of that, and then no server starts any more.
func TestStoppedPostgresLeavesNoSharedMemory(t *testing.T) {
	kept := func(id string) bool {
		out, err := exec.Command("ipcs", "-m").Output()
		if err != nil {
			t.Fatalf("ipcs: %v", err)
		}
		for line := range strings.Lines(string(out)) {
			if f := strings.Fields(line); len(f) > 1 && f[1] == id {
				return true
			}
		}
		return false
	}
	var id string
	t.Run("while the test runs", func(t *testing.T) {
		s := Postgres(t)
		text, err := os.ReadFile(filepath.Join(postgresData(s), "postmaster.pid"))
		steps.Must(t, err)
		lines := strings.Split(string(text), "\n")
		id = strings.Fields(lines[6])[1] // the key and the id of its shared memory
		steps.Same(t, "the shared memory of a running server is there", kept(id), true)
	})
	steps.Same(t, "the shared memory of a server that was stopped is there", kept(id), false)
}
