package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/fencelock/fencelock/internal/testserver"
)

// maxBinary is the size that docs/install.md promises for the stripped command.
const maxBinary = 35_000_000

// rehearsal makes a release for this platform twice, and tries the first as its users
// would. It leaves to the real release: the other platforms, which differ by the
// linker's target and by zip, and are compiled by make cross; the rpm, which is built
// here and not installed; and everything that needs the network's own proxy or GitHub.
func rehearsal(ctx context.Context, source, version string) error {
	dir, err := os.MkdirTemp("", "fencelock-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	first, err := newRelease(ctx, source, filepath.Join(dir, "first"), version)
	if err != nil {
		return err
	}
	if err := first.make(ctx, []platform{thisPlatform}); err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(dir, "redis"), 0o755); err != nil {
		return err
	}
	redis, err := testserver.StartRedis(ctx, filepath.Join(dir, "redis"))
	if err != nil {
		return err
	}
	defer redis.Stop()
	t := &trial{release: first, dir: dir, redis: redis.URL()}
	if t.env, err = first.outside(ctx); err != nil {
		return err
	}
	checks := []struct {
		name string
		do   func(context.Context) error
	}{
		{"the go command finds the tags in git", t.tags},
		{"a second build gives equal sums", t.again},
		{"a new module gets and runs the README", t.program},
		{"go install", t.install},
		{"the archive unpacks and runs", t.archive},
		{"the deb installs, runs, and goes", t.deb},
	}
	for _, c := range checks {
		begun := time.Now()
		if err := c.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		fmt.Printf("ok  %-36s %5.1f s\n", c.name, time.Since(begun).Seconds())
	}
	return nil
}

// trial tries out one release.
type trial struct {
	release *release
	dir     string // for what the trial makes
	redis   string // the URL of a server
	env     []string
}

// again makes the release a second time, elsewhere, and compares.
func (t *trial) again(ctx context.Context) error {
	second, err := newRelease(ctx, t.release.source, filepath.Join(t.dir, "second"), t.release.version)
	if err != nil {
		return err
	}
	if err := second.make(ctx, []platform{thisPlatform}); err != nil {
		return err
	}
	for _, dir := range []func(*release) string{(*release).files, (*release).proxy} {
		if err := sameFiles(dir(t.release), dir(second)); err != nil {
			return err
		}
	}
	a, errA := t.release.git(ctx, "rev-parse", "HEAD")
	b, errB := second.git(ctx, "rev-parse", "HEAD")
	if a != b || errA != nil || errB != nil {
		return errors.Join(fmt.Errorf("the commits are %s and %s", a, b), errA, errB)
	}
	return nil
}

// sameFiles compares all files below two folders.
func sameFiles(a, b string) error {
	inA, err := readAll(a)
	if err != nil {
		return err
	}
	inB, err := readAll(b)
	if err != nil {
		return err
	}
	if len(inA) == 0 || len(inA) != len(inB) {
		return fmt.Errorf("%s has %d files, %s has %d", a, len(inA), b, len(inB))
	}
	for name, content := range inA {
		if !bytes.Equal(content, inB[name]) {
			return fmt.Errorf("%s differs from one build to the next", name)
		}
	}
	return nil
}

// readAll reads all files below a folder.
func readAll(dir string) (map[string][]byte, error) {
	files := map[string][]byte{}
	err := filepath.WalkDir(dir, func(name string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		inside, err := filepath.Rel(dir, name)
		if err != nil {
			return err
		}
		files[inside], err = os.ReadFile(name)
		return err
	})
	return files, err
}
