package testserver

import (
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
