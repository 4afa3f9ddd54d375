package testserver

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestABadConfigurationIsToldWithTheServersOwnWords(t *testing.T) {
	_, err := StartRedis(t.Context(), t.TempDir(), Config("nonsense yes"))
	if err == nil || !strings.Contains(err.Error(), "nonsense") {
		t.Errorf("the error does not show what the server printed: %v", err)
	}
}

func TestAMissingProgramSaysWhatToInstall(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := StartRedis(t.Context(), t.TempDir())
	if err == nil || !strings.Contains(err.Error(), "apt-get install redis-server") {
		t.Errorf("the error does not say what to install: %v", err)
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

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
		check(t, err)
		lines := strings.Split(string(text), "\n")
		id = strings.Fields(lines[6])[1] // the key and the id of its shared memory
		if !kept(id) {
			t.Errorf("shared memory %s of a running server is not there", id)
		}
	})
	if kept(id) {
		t.Errorf("the system keeps the shared memory %s of a server that was stopped", id)
	}
}
