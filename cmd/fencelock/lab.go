package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"

	"github.com/spf13/cobra"
)

// labProgram plays the lab. It starts servers, so it is no part of this program.
const labProgram = "fencelock-lab"

func newLab(*cli) *cobra.Command {
	return &cobra.Command{
		Use:   "lab [N] [--lang en|zh] [--all]",
		Short: "See the locks of well-known tutorials break",
		Long: `lab lists locks as tutorials write them, and what each of them breaks. lab N plays
one, step by step: what clients A and B do, what the store holds after it, where it
broke, and the same schedule against fencelock. --all plays all of them.

It needs no store of yours and touches none: it starts servers of its own, in a
temporary folder, on loopback ports, and ends them: redis-server, for 19 and 20
PostgreSQL, for 21 etcd. The exit code is 0 if everything behaved as the text says, 1 if
not, and 78 if such a server is not installed.

A program of its own plays it, ` + labProgram + `. fencelock looks for it in its own
directory, then in PATH. Inside a clone of the repository it builds it with go.`,
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if slices.Contains(args, "--help") || slices.Contains(args, "-h") {
				return cmd.Help()
			}
			path, err := findLab()
			if err != nil {
				return err
			}
			return become(path, append([]string{path}, args...))
		},
	}
}

// findLab finds the program that plays the lab, or builds it.
func findLab() (string, error) {
	name := labProgram
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	if self, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(self), name)
		if info, err := os.Stat(beside); err == nil && info.Mode().IsRegular() {
			return beside, nil
		}
	}
	if path, err := exec.LookPath(labProgram); err == nil {
		return path, nil
	}
	if source := labSource(); source != "" {
		return buildLab(source, name)
	}
	return "", fail(exitConfig, "the lab is a program of its own, %s, which is neither in the directory of "+
		"fencelock nor in PATH; "+
		"get it with go install github.com/fencelock/fencelock/lab/cmd/%s@latest, or run fencelock lab inside a "+
		"clone of the repository",
		labProgram, labProgram)
}

// labSource is the directory of the module lab if this process runs inside a clone of the
// repository, else "".
func labSource() string {
	dir, err := os.Getwd()
	if err != nil {
		return ""
	}
	for {
		b, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && bytes.HasPrefix(b, []byte("module github.com/fencelock/fencelock\n")) {
			return filepath.Join(dir, "lab")
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return ""
		}
		dir = parent
	}
}

// buildLab builds the program into the user's cache, and says so.
func buildLab(source, name string) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fail(exitConfig, "there is no cache directory to build %s in: %v", labProgram, err)
	}
	path := filepath.Join(cache, "fencelock", name)
	say("building %s from %s", labProgram, source)
	build := exec.Command("go", "build", "-o", path, "./cmd/"+labProgram)
	build.Dir = source
	build.Stdout, build.Stderr = io.Discard, os.Stderr
	if err := build.Run(); err != nil {
		return "", fail(exitConfig, "%s cannot be built: %v", labProgram, err)
	}
	return path, nil
}

// cannotStart says that the program of the lab is there and cannot be executed.
func cannotStart(path string, err error) error {
	return fail(exitNotExecutable, "%s cannot be executed: %v", quote(path), err)
}
