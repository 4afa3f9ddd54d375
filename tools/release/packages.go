package main

import (
	"context"
	"path/filepath"
	"strconv"
	"strings"
)

// makePackages makes the deb and the rpm that nfpm.yaml describes.
func (r *release) makePackages(ctx context.Context, t platform, binaries []string) error {
	nfpm, err := r.tool(ctx, "nfpm")
	if err != nil {
		return err
	}
	env := []string{
		"SOURCE_DATE_EPOCH=" + strconv.FormatInt(r.time.Unix(), 10),
		"VERSION=" + strings.TrimPrefix(r.version, "v"), "ARCH=" + t.arch,
		"BINARY=" + binaries[0], "LAB=" + binaries[1], "CLONE=" + r.clone(), "TEXTS=" + r.texts(),
		"MAN=" + r.man(), "COMPLETIONS=" + r.completions(),
	}
	for _, kind := range []string{"deb", "rpm"} {
		target := filepath.Join(r.files(), r.base(t)+"."+kind)
		config := filepath.Join(r.source, "tools", "release", "nfpm.yaml")
		args := []string{"package", "--packager", kind, "--config", config, "--target", target}
		if _, err := output(ctx, command{env: env, name: nfpm, args: args}); err != nil {
			return err
		}
	}
	return nil
}

// tool builds a tool that go.mod of this program names, once, and returns where it is. The
// SBOM has the sum of the tool that wrote it, so -trimpath: it is the same in every folder.
func (r *release) tool(ctx context.Context, name string) (string, error) {
	dir := filepath.Join(r.source, "tools", "release")
	env := []string{"GOWORK=off", "GOFLAGS=-trimpath", "CGO_ENABLED=0"}
	return output(ctx, command{dir: dir, env: env, name: "go", args: []string{"tool", "-n", name}})
}
