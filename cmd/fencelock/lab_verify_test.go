//go:build verify && unix

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Inside a clone of the repository a contributor needs no installation.
func TestLabIsBuiltInsideTheRepository(t *testing.T) {
	t.Parallel()
	s := newStage(t, "")
	p := s.command("fencelock", "lab", "--lang", "en")
	p.cmd.Dir = filepath.Dir(mustGetwd(t))
	p.cmd.Env = append(p.cmd.Env, "XDG_CACHE_HOME="+t.TempDir())
	if code := p.begin().wait(); code != 0 || !strings.Contains(p.out.String(), "Play one with fencelock lab N") {
		t.Errorf("exit %d, %q", code, p.out.String())
	}
	p.wantLine("building fencelock-lab from ")
}

func mustGetwd(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	must(t, err)
	return dir
}
