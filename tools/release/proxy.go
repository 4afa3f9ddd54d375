package main

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/mod/module"
	"golang.org/x/mod/sumdb/dirhash"
	"golang.org/x/mod/zip"
)

// makeModules sets the versions of all modules, and writes the released ones to a
// module proxy of files. A module's go.sum has the sums of those it needs, so each is
// finished before the next begins.
func (r *release) makeModules(ctx context.Context) error {
	released, unreleased, err := r.findModules(ctx)
	if err != nil {
		return err
	}
	for _, m := range unreleased {
		if err := r.writeGoMod(m, true); err != nil {
			return err
		}
	}
	known := map[string]sums{}
	for _, m := range released {
		if err := r.writeGoMod(m, false); err != nil {
			return err
		}
		if err := r.writeGoSum(m, known); err != nil {
			return err
		}
		tree, err := r.tree(ctx)
		if err != nil {
			return err
		}
		if known[m.path], err = r.publish(m, tree); err != nil {
			return err
		}
	}
	r.modules = released
	return nil
}

func (r *release) writeGoMod(m goModule, keepReplace bool) error {
	if err := setVersions(m.file, r.version, keepReplace); err != nil {
		return err
	}
	text, err := m.file.Format()
	if err != nil {
		return err
	}
	return os.WriteFile(r.inClone(m, "go.mod"), text, 0o644)
}

func (r *release) writeGoSum(m goModule, known map[string]sums) error {
	add := map[string]sums{}
	for _, need := range m.needs() {
		add[need] = known[need]
	}
	if len(add) == 0 {
		return nil
	}
	name := r.inClone(m, "go.sum")
	text, err := os.ReadFile(name)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	return os.WriteFile(name, []byte(addSums(string(text), r.version, add)), 0o644)
}

func (r *release) inClone(m goModule, name string) string {
	return filepath.Join(r.clone(), filepath.FromSlash(m.dir), name)
}

// publish writes the four files that a module proxy has for a version.
func (r *release) publish(m goModule, tree string) (sums, error) {
	escaped, err := module.EscapePath(m.path)
	if err != nil {
		return sums{}, err
	}
	dir := filepath.Join(r.proxy(), filepath.FromSlash(escaped), "@v")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return sums{}, err
	}
	info, err := json.Marshal(struct {
		Version string
		Time    time.Time
	}{r.version, r.time})
	if err != nil {
		return sums{}, err
	}
	text, err := os.ReadFile(r.inClone(m, "go.mod"))
	if err != nil {
		return sums{}, err
	}
	base := filepath.Join(dir, r.version)
	for name, content := range map[string][]byte{
		filepath.Join(dir, "list"): []byte(r.version + "\n"),
		base + ".info":             info,
		base + ".mod":              text,
	} {
		if err := os.WriteFile(name, content, 0o644); err != nil {
			return sums{}, err
		}
	}
	if err := r.zip(base+".zip", m, tree); err != nil {
		return sums{}, err
	}
	return hash(base+".zip", string(text))
}

// zip writes the files of a module as the go command would fetch them from git.
func (r *release) zip(name string, m goModule, tree string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer f.Close()
	version := module.Version{Path: m.path, Version: r.version}
	if err := zip.CreateFromVCS(f, version, r.clone(), tree, m.dir); err != nil {
		return err
	}
	return f.Close()
}

// hash returns what go.sum says of a module.
func hash(zipFile, goMod string) (s sums, err error) {
	if s.zip, err = dirhash.HashZip(zipFile, dirhash.Hash1); err != nil {
		return s, err
	}
	s.mod, err = dirhash.Hash1([]string{"go.mod"}, func(string) (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader(goMod)), nil
	})
	return s, err
}
