package main

import (
	"bytes"
	"context"
	"errors"
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

// tree is one version of the sources.
type tree struct {
	name, root string
	programs   []string // test binaries, as compared; "" if a package does not compile there
	out        *os.File // what its benchmarks print
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
	trees := []*tree{{name: ref, root: old}, {name: "now", root: root}}
	for _, t := range trees {
		if err := t.build(ctx, dir); err != nil {
			return err
		}
		defer t.out.Close()
	}
	for round := range rounds {
		fmt.Fprintf(os.Stderr, "round %d of %d\n", round+1, rounds)
		for _, t := range trees {
			if err := t.run(ctx); err != nil {
				return err
			}
		}
	}
	cmd := in(ctx, filepath.Join(root, "verify"), "go", "tool", "benchstat")
	for _, t := range trees {
		cmd.Args = append(cmd.Args, t.name+"="+t.out.Name())
	}
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
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

// build compiles the benchmarks. A package that does not compile is left out.
func (t *tree) build(ctx context.Context, dir string) (err error) {
	for i, c := range compared {
		program := filepath.Join(dir, fmt.Sprintf("%s-%d", filepath.Base(t.root), i))
		if _, err := output(ctx, filepath.Join(t.root, c.folder), "go", "test", "-c", "-o", program); err != nil {
			fmt.Fprintf(os.Stderr, "%s of %s is not compared: %v\n", c.folder, t.name, err)
			program = ""
		}
		t.programs = append(t.programs, program)
	}
	t.out, err = os.CreateTemp(dir, "*.txt")
	return err
}

// run runs the benchmarks once.
func (t *tree) run(ctx context.Context) error {
	for i, c := range compared {
		if t.programs[i] == "" {
			continue
		}
		cmd := in(ctx, filepath.Join(t.root, c.folder), t.programs[i], "-test.run", "^$",
			"-test.bench", c.benchmarks, "-test.benchmem", "-test.benchtime", "0.5s")
		cmd.Stdout, cmd.Stderr = t.out, os.Stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("the benchmarks of %s of %s: %w", c.folder, t.name, err)
		}
	}
	return nil
}

func in(ctx context.Context, dir, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	return cmd
}

func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	out, err := in(ctx, dir, name, args...).Output()
	if err != nil {
		var failed *exec.ExitError
		if errors.As(err, &failed) {
			out = failed.Stderr
		}
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return strings.TrimSpace(string(out)), nil
}
