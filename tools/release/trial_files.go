package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// archive checks the sums, unpacks the archive with the system's tar, and runs what is
// in it.
func (t *trial) archive(ctx context.Context) error {
	if runtime.GOOS == "windows" {
		return errors.New("it is not rehearsed on Windows, which has no sha256sum")
	}
	r := t.release
	check := command{dir: r.files(), name: "sha256sum", args: []string{"--check", "--strict", sumsFile}}
	if runtime.GOOS == "darwin" {
		check.name, check.args = "shasum", []string{"-a", "256", "--check", sumsFile}
	}
	if _, err := output(ctx, check); err != nil {
		return err
	}
	base := r.base(thisPlatform)
	untar := command{dir: t.dir, name: "tar", args: []string{"-xzf", filepath.Join(r.files(), base+".tar.gz")}}
	if _, err := output(ctx, untar); err != nil {
		return err
	}
	for _, name := range []string{
		"LICENSE", "README.md", "INSTALL.txt", "clients/python/fencelock/__init__.py", "man/man1/fencelock-run.1",
		"completions/_fencelock",
	} {
		if info, err := os.Stat(filepath.Join(t.dir, base, name)); err != nil || info.Size() == 0 {
			return fmt.Errorf("%s is missing or empty in the archive", name)
		}
	}
	binary := filepath.Join(t.dir, base, "fencelock")
	info, err := os.Stat(binary)
	if err != nil {
		return err
	}
	fmt.Printf("    the command has %.1f MB\n", float64(info.Size())/1e6)
	if info.Size() > maxBinary {
		return fmt.Errorf("the command has %d bytes, docs/install.md promises %d", info.Size(), maxBinary)
	}
	return t.runs(ctx, binary)
}

// runs tries a binary on a server.
func (t *trial) runs(ctx context.Context, binary string) error {
	version, err := output(ctx, command{dir: t.dir, name: binary, args: []string{"version"}})
	if err != nil {
		return err
	}
	if !strings.HasPrefix(version, "fencelock "+t.release.version+" ") {
		return fmt.Errorf("%s version prints %q", binary, version)
	}
	run := command{dir: t.dir, name: binary, env: []string{"FENCELOCK_URL=" + t.redis},
		args: []string{"run", "rehearsal", "--", "sh", "-c", "echo under $FENCELOCK_TOKEN"}}
	out, err := output(ctx, run)
	if err != nil || len(strings.Fields(out)) != 2 {
		return errors.Join(err, fmt.Errorf("%s run printed %q", binary, out))
	}
	lab := command{dir: t.dir, name: binary, args: []string{"lab", "4", "--lang", "en"}}
	if out, err = output(ctx, lab); err != nil || !strings.Contains(out, "As told: the scheme breaks I1") {
		return errors.Join(err, fmt.Errorf("%s lab 4 printed %q", binary, out))
	}
	return nil
}

// deb installs the package on this machine, and removes it.
func (t *trial) deb(ctx context.Context) (err error) {
	if _, missing := exec.LookPath("dpkg"); missing != nil || os.Geteuid() != 0 {
		fmt.Println("    NOT RUN: it needs dpkg, and root")
		return nil
	}
	const binary = "/usr/bin/fencelock"
	dpkg := func(args ...string) error {
		_, err := output(context.WithoutCancel(ctx), command{dir: t.dir, name: "dpkg", args: args})
		return err
	}
	if os.Getenv("CI") != "" { // a rehearsal that was killed left it
		_ = dpkg("--purge", "fencelock")
	}
	if _, err := os.Lstat(binary); err == nil {
		return fmt.Errorf("%s is there already; the rehearsal leaves it alone, so remove it first", binary)
	}
	defer func() {
		err = errors.Join(err, dpkg("--purge", "fencelock"))
		if _, there := os.Lstat(binary); there == nil {
			err = errors.Join(err, fmt.Errorf("%s is still there after dpkg --purge", binary))
		}
	}()
	if err := dpkg("--install", filepath.Join(t.release.files(), t.release.base(thisPlatform)+".deb")); err != nil {
		return err
	}
	return t.runs(ctx, binary)
}
