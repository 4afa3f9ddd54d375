package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// compared are the packages whose Go benchmarks are run, and which of them.
var compared = []struct{ folder, benchmarks string }{
	{".", "FreeLock"}, {"memlock", "FreeLock"}, {"redislock", "FreePair|HandOver/1000?$"},
}

// compareWith runs the Go benchmarks of this tree and of an earlier one by turns, and has
// benchstat compare them.
func compareWith(ctx context.Context, ref string, rounds int) error {
	root, err := output(ctx, ".", "git", "rev-parse", "--show-toplevel")
	if err != nil {
		return err
	}
	if ref == "last" {
		if ref, err = lastTag(ctx, root); err != nil {
			return err
		}
	}
	dir, err := os.MkdirTemp("", "fencelock-compare-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	old := filepath.Join(dir, "old")
	if err := export(ctx, root, ref, old); err != nil {
		return err
	}
	trees := []tree{{ref, old, filepath.Join(dir, "before")}, {"now", root, filepath.Join(dir, "now")}}
	for _, t := range trees {
		t.build(ctx)
	}
	for round := range rounds {
		fmt.Fprintf(os.Stderr, "round %d of %d\n", round+1, rounds)
		for _, t := range trees {
			if err := t.run(ctx); err != nil {
				return err
			}
		}
	}
	cmd := in(ctx, filepath.Join(root, "verify"), "go", "tool", "benchstat",
		trees[0].name+"="+trees[0].files+".txt", trees[1].name+"="+trees[1].files+".txt")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}

// tree is one version of the sources.
type tree struct {
	name, root string
	files      string // what the names of its test binaries and of its output begin with
}

func (t tree) program(i int) string { return fmt.Sprint(t.files, "-", i) }

// build compiles the benchmarks. A package that does not compile is left out.
func (t tree) build(ctx context.Context) {
	for i, c := range compared {
		if _, err := output(ctx, filepath.Join(t.root, c.folder), "go", "test", "-c", "-o", t.program(i)); err != nil {
			fmt.Fprintf(os.Stderr, "%s of %s is left out: %v\n", c.folder, t.name, err)
		}
	}
}

// run runs the benchmarks once.
func (t tree) run(ctx context.Context) error {
	out, err := os.OpenFile(t.files+".txt", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	for i, c := range compared {
		if _, err := os.Stat(t.program(i)); err != nil {
			continue
		}
		cmd := in(ctx, filepath.Join(t.root, c.folder), t.program(i), "-test.run", "^$",
			"-test.bench", c.benchmarks, "-test.benchmem", "-test.benchtime", "0.5s")
		cmd.Stdout, cmd.Stderr = io.MultiWriter(out, os.Stderr), os.Stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("the benchmarks of %s of %s: %w", c.folder, t.name, err)
		}
	}
	return nil
}

// lastTag is the last tag, or the first commit where there is none.
func lastTag(ctx context.Context, root string) (string, error) {
	if tag, err := output(ctx, root, "git", "describe", "--tags", "--abbrev=0"); err == nil {
		return tag, nil
	}
	all, err := output(ctx, root, "git", "rev-list", "--max-parents=0", "HEAD")
	first, _, _ := strings.Cut(all, "\n")
	return first, err
}

// export puts the files of a commit into a folder, and leaves no trace in the repository.
func export(ctx context.Context, root, ref, dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	if _, err := output(ctx, root, "git", "archive", "-o", dir+".tar", ref); err != nil {
		return err
	}
	_, err := output(ctx, dir, "tar", "-xf", dir+".tar")
	return err
}

func in(ctx context.Context, dir, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	return cmd
}

func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := in(ctx, dir, name, args...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, bytes.TrimSpace(said.Bytes()))
	}
	return strings.TrimSpace(string(out)), nil
}
