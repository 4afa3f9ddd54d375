package main

import (
	"bytes"
	"context"
	"fmt"
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
	trees := []struct{ name, root, out string }{
		{ref, old, filepath.Join(dir, "before.txt")}, {"now", root, filepath.Join(dir, "now.txt")},
	}
	for round := range rounds {
		fmt.Fprintf(os.Stderr, "round %d of %d\n", round+1, rounds)
		for _, t := range trees {
			if err := runBenchmarks(ctx, t.root, t.out); err != nil {
				return err
			}
		}
	}
	cmd := in(ctx, filepath.Join(root, "verify"), "go", "tool", "benchstat",
		trees[0].name+"="+trees[0].out, trees[1].name+"="+trees[1].out)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}

// runBenchmarks runs the benchmarks of a tree once, and adds what they print to a file. A
// package that does not compile there is left out.
func runBenchmarks(ctx context.Context, root, file string) error {
	out, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	for _, c := range compared {
		cmd := in(ctx, filepath.Join(root, c.folder), "go", "test", "-run", "^$",
			"-bench", c.benchmarks, "-benchmem", "-benchtime", "0.5s")
		cmd.Stdout, cmd.Stderr = out, os.Stderr
		if err := cmd.Run(); err != nil {
			fmt.Fprintf(os.Stderr, "%s is left out: %v\n", cmd.Dir, err)
		}
	}
	return ctx.Err()
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
