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
	{"redislock", ".", "FreePair|ManyKeys|HandOver/1000?$"},
}

// compareWith runs the Go benchmarks of this tree and of an earlier one in turns, and has
// benchstat compare them.
func compareWith(ctx context.Context, ref string, rounds int) error {
	root, err := output(ctx, ".", "git", "rev-parse", "--show-toplevel")
	if err != nil {
		return err
	}
	if ref == "last" {
		if ref, err = output(ctx, root, "git", "describe", "--tags", "--abbrev=0"); err != nil {
			all, err := output(ctx, root, "git", "rev-list", "--max-parents=0", "HEAD")
			if err != nil {
				return err
			}
			ref, _, _ = strings.Cut(all, "\n")
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

	files := []string{filepath.Join(dir, "old.txt"), filepath.Join(dir, "new.txt")}
	trees := []string{old, root}
	programs := map[string]string{}
	for i, tree := range trees {
		for _, c := range compared {
			for _, p := range strings.Fields(c.packages) {
				name := filepath.Join(dir, fmt.Sprintf("%d-%d", i, len(programs)))
				if out, err := in(ctx, filepath.Join(tree, c.module), "go", "test", "-c", "-o", name, p).CombinedOutput(); err != nil {
					fmt.Fprintf(os.Stderr, "%s of %s is not compared: %s\n", filepath.Join(c.module, p), []string{ref, "this tree"}[i], bytes.TrimSpace(out))
					continue
				}
				programs[filepath.Join(tree, c.module, p)] = name
			}
		}
	}
	for round := range rounds {
		fmt.Fprintf(os.Stderr, "round %d of %d\n", round+1, rounds)
		for i, tree := range trees {
			f, err := os.OpenFile(files[i], os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
			if err != nil {
				return err
			}
			for _, c := range compared {
				for _, p := range strings.Fields(c.packages) {
					folder := filepath.Join(tree, c.module, p)
					if programs[folder] == "" {
						continue
					}
					cmd := in(ctx, folder, programs[folder], "-test.run", "^$", "-test.bench", c.benchmarks, "-test.benchmem", "-test.benchtime", "0.5s")
					cmd.Stdout, cmd.Stderr = f, os.Stderr
					if err := cmd.Run(); err != nil {
						return errors.Join(fmt.Errorf("the benchmarks of %s: %w", folder, err), f.Close())
					}
				}
			}
			if err := f.Close(); err != nil {
				return err
			}
		}
	}
	cmd := in(ctx, filepath.Join(root, "verify"), "go", "tool", "benchstat", ref+"="+files[0], "now="+files[1])
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
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
