package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/mod/semver"
)

// release is one release in the making. All it writes is below out.
type release struct {
	version string    // as in v0.9.0
	source  string    // the repository it is made from; only read
	out     string    // clone, proxy, files, and what is needed on the way
	time    time.Time // of the commit, and of every file that is made
	modules []goModule
}

func (r *release) clone() string { return filepath.Join(r.out, "clone") }
func (r *release) proxy() string { return filepath.Join(r.out, "proxy") }
func (r *release) files() string { return filepath.Join(r.out, "files") }
func (r *release) work() string  { return filepath.Join(r.out, "work") }

// newRelease checks that the version and the working tree are fit for a release.
func newRelease(ctx context.Context, source, out, version string) (*release, error) {
	if !semver.IsValid(version) || semver.Canonical(version) != version {
		return nil, fmt.Errorf("%s is not a version such as v0.9.0 or v1.0.0-rc.1", version)
	}
	if major := semver.Major(version); major != "v0" && major != "v1" {
		return nil, fmt.Errorf("%s: the module paths would have to end with /%s first", version, major)
	}
	dirty, err := output(ctx, command{dir: source, name: "git", args: []string{"status", "--porcelain"}})
	if err != nil {
		return nil, err
	}
	if dirty != "" {
		return nil, fmt.Errorf("the working tree has changes; commit or remove them first:\n%s", dirty)
	}
	if _, err := os.Lstat(out); err == nil {
		return nil, fmt.Errorf("%s exists already; remove it first", out)
	}
	when, err := commitTime(ctx, source)
	return &release{version: version, source: source, out: out, time: when}, err
}

// make does all of it, in an order in which each step needs only those before it.
func (r *release) make(ctx context.Context, targets []platform) error {
	for _, dir := range []string{r.proxy(), r.files(), r.work()} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	steps := []struct {
		name string
		do   func(context.Context) error
	}{
		{"clone the commit", r.makeClone},
		{"texts of a release", r.releaseTexts},
		{"set versions, write the module proxy", r.makeModules},
		{"commit and tag", r.tag},
		{"man pages and completions", r.makePages},
		{"release notes", r.makeNotes},
		{"texts for those without a clone", r.makeTexts},
	}
	for _, t := range targets {
		steps = append(steps, struct {
			name string
			do   func(context.Context) error
		}{t.String(), func(ctx context.Context) error { return r.makePlatform(ctx, t) }})
	}
	for _, s := range steps {
		begun := time.Now()
		if err := s.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		fmt.Printf("%-40s %5.1f s\n", s.name, time.Since(begun).Seconds())
	}
	return writeSums(r.files())
}

// makePlatform makes all files of one platform.
func (r *release) makePlatform(ctx context.Context, t platform) error {
	var binaries []string
	for _, program := range t.programs() {
		binary, err := r.build(ctx, t, program)
		if err != nil {
			return err
		}
		if err := r.makeSBOM(ctx, t, binary); err != nil {
			return err
		}
		binaries = append(binaries, binary)
	}
	if err := r.makeArchive(t, binaries); err != nil {
		return err
	}
	if t.os != "linux" {
		return nil
	}
	return r.makePackages(ctx, t, binaries)
}
