package main

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
)

const rootPath = "github.com/fencelock/fencelock"

// private are the folders of modules that nobody imports or installs. They keep their
// replace lines.
var private = []string{"examples", "tools", "verify"}

// goModule is a module that is released.
type goModule struct {
	path string // as programs import it
	dir  string // below the repository, slash-separated; "" for the root
	file *modfile.File
}

// ours reports whether a module is one of this repository.
func ours(path string) bool {
	return path == rootPath || strings.HasPrefix(path, rootPath+"/")
}

// needs returns the modules of this repository that m requires.
func (m goModule) needs() []string {
	var paths []string
	for _, r := range m.file.Require {
		if ours(r.Mod.Path) {
			paths = append(paths, r.Mod.Path)
		}
	}
	return paths
}

// findModules reads the go.mod files that git knows of. The private ones come second.
func (r *release) findModules(ctx context.Context) (released, unreleased []goModule, err error) {
	names, err := r.git(ctx, "ls-files", "--", "go.mod", "*/go.mod")
	if err != nil {
		return nil, nil, err
	}
	for _, name := range strings.Fields(names) {
		text, err := os.ReadFile(filepath.Join(r.clone(), filepath.FromSlash(name)))
		if err != nil {
			return nil, nil, err
		}
		file, err := modfile.Parse(name, text, nil)
		if err != nil {
			return nil, nil, err
		}
		m := goModule{path: file.Module.Mod.Path, dir: strings.TrimSuffix(path.Dir(name), "."), file: file}
		if want := path.Join(rootPath, m.dir); m.path != want {
			return nil, nil, fmt.Errorf("%s is of the module %s; users would look for %s there", name, m.path, want)
		}
		top, _, _ := strings.Cut(m.dir, "/")
		if slices.Contains(private, top) {
			unreleased = append(unreleased, m)
		} else {
			released = append(released, m)
		}
	}
	released, err = dependenciesFirst(released)
	return released, unreleased, err
}

// dependenciesFirst orders modules so that each comes after those it needs.
func dependenciesFirst(modules []goModule) ([]goModule, error) {
	var sorted []goModule
	done := map[string]bool{}
	for len(sorted) < len(modules) {
		before := len(sorted)
		for _, m := range modules {
			ready := !slices.ContainsFunc(m.needs(), func(need string) bool { return !done[need] })
			if ready && !done[m.path] {
				done[m.path] = true
				sorted = append(sorted, m)
			}
		}
		if len(sorted) == before {
			return nil, fmt.Errorf("%d of %d modules need each other in a circle, or one that is not released",
				len(modules)-len(sorted), len(modules))
		}
	}
	return sorted, nil
}

// setVersions lets a go.mod require version of each module of ours. Without the replace
// lines it works outside the repository.
func setVersions(file *modfile.File, version string, keepReplace bool) error {
	for _, r := range slices.Clone(file.Require) {
		if ours(r.Mod.Path) {
			if err := file.AddRequire(r.Mod.Path, version); err != nil {
				return err
			}
		}
	}
	for _, r := range slices.Clone(file.Replace) {
		switch {
		case keepReplace:
		case ours(r.Old.Path):
			if err := file.DropReplace(r.Old.Path, r.Old.Version); err != nil {
				return err
			}
		default:
			return fmt.Errorf("go.mod replaces %s, which has no effect outside the repository", r.Old.Path)
		}
	}
	file.Cleanup()
	return nil
}

// sums are the two lines of go.sum that a module has with those that require it.
type sums struct{ zip, mod string }

// addSums adds the lines of modules to a go.sum, in the order in which the go command
// keeps them.
func addSums(text string, version string, add map[string]sums) string {
	type line struct {
		module.Version
		sum string
	}
	var lines []line
	for l := range strings.Lines(text) {
		if f := strings.Fields(l); len(f) == 3 {
			lines = append(lines, line{module.Version{Path: f[0], Version: f[1]}, f[2]})
		}
	}
	for path, s := range add {
		lines = append(lines,
			line{module.Version{Path: path, Version: version}, s.zip},
			line{module.Version{Path: path, Version: version + "/go.mod"}, s.mod})
	}
	var versions []module.Version
	bySum := map[module.Version]string{}
	for _, l := range lines {
		versions = append(versions, l.Version)
		bySum[l.Version] = l.sum
	}
	module.Sort(versions)
	var b strings.Builder
	for _, v := range slices.Compact(versions) {
		fmt.Fprintf(&b, "%s %s %s\n", v.Path, v.Version, bySum[v])
	}
	return b.String()
}
