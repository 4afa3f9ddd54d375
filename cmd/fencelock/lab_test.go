//go:build unix

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/drivertest/steps"
)

// fakeLab puts a program into dir that tells how it was called, and ends with 7.
func fakeLab(t *testing.T, dir, says string) {
	t.Helper()
	script := "#!/bin/sh\necho " + says + " \"$@\"\nexit 7\n"
	writeProgram(t, filepath.Join(dir, labProgram), "755", script)
}

// writeProgram writes a program by another process. A child of this one that is just being started would have the file
// open, and what is open for writing cannot be run.
func writeProgram(t testing.TB, path, mode, text string) {
	t.Helper()
	c := exec.Command("sh", "-c", `cat >"$1" && chmod "$2" "$1"`, "sh", path, mode)
	c.Stdin = strings.NewReader(text)
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("writing %s: %v: %s", path, err, out)
	}
}

func TestLabIsPlayedByItsOwnProgram(t *testing.T) {
	s := newStage(t, "")
	lab := func(program string, path ...string) (int, *proc) {
		p := s.command(program, "lab", "4", "--lang", "zh")
		p.cmd.Env = append(p.cmd.Env, "PATH="+strings.Join(path, ":"))
		return p.begin().wait(), p
	}
	inPath := t.TempDir()
	fakeLab(t, inPath, "in PATH")
	if code, p := lab("fencelock", inPath); code != 7 || p.out.String() != "in PATH 4 --lang zh\n" {
		t.Errorf("exit %d, %q, %s", code, p.out.String(), p.err.String())
	}
	code, p := lab("fencelock", t.TempDir())
	steps.Same(t, "exit", code, exitConfig)
	p.wantLine("fencelock-lab, which is neither in the directory of fencelock nor in PATH; get it with go install ")

	// The one beside the program goes before the one in PATH.
	beside := t.TempDir()
	fakeLab(t, beside, "beside")
	must(t, os.Link(binary, filepath.Join(beside, "fencelock")))
	if code, p := lab(filepath.Join(beside, "fencelock"), inPath); code != 7 || p.out.String() != "beside 4 --lang zh\n" {
		t.Errorf("exit %d, %q, %s", code, p.out.String(), p.err.String())
	}
}

// The released command starts no servers: the lab and what launches them for tests are no
// part of it, whatever imports them.
func TestCommandLinksNoServers(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	must(t, err)
	for name := range strings.Lines(string(out)) {
		switch strings.TrimSpace(name) {
		case "github.com/fencelock/fencelock/lab", "github.com/fencelock/fencelock/internal/testserver", "testing":
			t.Errorf("the command links %s", name)
		}
	}
}
