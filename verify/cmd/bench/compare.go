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

// compared are the packages whose Go benchmarks are run, by the folder of their module,
// and which of their benchmarks.
var compared = []struct{ module, packages, benchmarks string }{
	{".", ". ./memlock", "FreeLock"},
	{"redislock", ".", "FreePair|HandOver/1000?$"},
}

// comparison is two trees whose Go benchmarks are run by turns.
type comparison struct {
	dir      string // scratch
	names    [2]string
	trees    [2]string
	files    [2]string         // what the benchmarks of each tree print
	programs map[string]string // test binary, by the folder of its package
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
	c := comparison{
		dir: dir, names: [2]string{ref, "now"}, trees: [2]string{old, root},
		files:    [2]string{filepath.Join(dir, "old.txt"), filepath.Join(dir, "new.txt")},
		programs: map[string]string{},
	}
	for i := range c.trees {
		c.build(ctx, i)
	}
	for round := range rounds {
		fmt.Fprintf(os.Stderr, "round %d of %d\n", round+1, rounds)
		for i := range c.trees {
			if err := c.run(ctx, i); err != nil {
				return err
			}
		}
	}
	cmd := in(ctx, filepath.Join(root, "verify"), "go", "tool", "benchstat",
		c.names[0]+"="+c.files[0], c.names[1]+"="+c.files[1])
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

// build compiles the benchmarks of tree i. A package that does not compile there is left out.
func (c *comparison) build(ctx context.Context, i int) {
	for _, x := range compared {
		for _, p := range strings.Fields(x.packages) {
			name := filepath.Join(c.dir, fmt.Sprintf("%d-%d", i, len(c.programs)))
			cmd := in(ctx, filepath.Join(c.trees[i], x.module), "go", "test", "-c", "-o", name, p)
			if out, err := cmd.CombinedOutput(); err != nil {
				fmt.Fprintf(os.Stderr, "%s of %s is not compared: %s\n",
					filepath.Join(x.module, p), c.names[i], bytes.TrimSpace(out))
				continue
			}
			c.programs[filepath.Join(c.trees[i], x.module, p)] = name
		}
	}
}

// run runs the benchmarks of tree i once.
func (c *comparison) run(ctx context.Context, i int) (err error) {
	f, err := os.OpenFile(c.files[i], os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	for _, x := range compared {
		for _, p := range strings.Fields(x.packages) {
			folder := filepath.Join(c.trees[i], x.module, p)
			if c.programs[folder] == "" {
				continue
			}
			cmd := in(ctx, folder, c.programs[folder], "-test.run", "^$",
				"-test.bench", x.benchmarks, "-test.benchmem", "-test.benchtime", "0.5s")
			cmd.Stdout, cmd.Stderr = f, os.Stderr
			if err := cmd.Run(); err != nil {
				return fmt.Errorf("the benchmarks of %s: %w", folder, err)
			}
		}
	}
	return nil
}

// export puts the files of a commit into a folder, and leaves no trace in the repository.
func export(ctx context.Context, root, ref, dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	archive, unpack := in(ctx, root, "git", "archive", ref), in(ctx, dir, "tar", "-x")
	var err error
	if unpack.Stdin, err = archive.StdoutPipe(); err != nil {
		return err
	}
	archive.Stderr, unpack.Stderr = os.Stderr, os.Stderr
	if err := archive.Start(); err != nil {
		return err
	}
	return errors.Join(unpack.Run(), archive.Wait())
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
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, bytes.TrimSpace(said.Bytes()))
	}
	return strings.TrimSpace(string(out)), nil
}
