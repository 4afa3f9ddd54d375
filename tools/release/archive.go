package main

import (
	"archive/tar"
	"archive/zip"
	"cmp"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"
)

// entry is one file of an archive.
type entry struct {
	name string // slash-separated
	from string // the file with its content
	mode os.FileMode
}

// base is the name of all files for one platform, without an ending.
func (r *release) base(t platform) string {
	return "fencelock-" + r.version + "-" + t.os + "-" + t.arch
}

// makeArchive packs the programs with their texts: zip for Windows, else tar.gz.
func (r *release) makeArchive(t platform, binaries []string) error {
	entries := []entry{{"INSTALL.txt", filepath.Join(r.source, "tools", "release", "INSTALL.txt"), 0o644}}
	for _, binary := range binaries {
		entries = append(entries, entry{filepath.Base(binary), binary, 0o755})
	}
	for _, pattern := range []string{
		"LICENSE", "clients/python/pyproject.toml", "clients/python/fencelock/*",
		"clients/typescript/*.json", "clients/typescript/src/*",
	} {
		files, err := filepath.Glob(filepath.Join(r.clone(), filepath.FromSlash(pattern)))
		if err != nil || len(files) == 0 {
			return fmt.Errorf("%s: %d files, %w", pattern, len(files), err)
		}
		for _, f := range files {
			entries = append(entries, entry{path.Join(path.Dir(pattern), filepath.Base(f)), f, 0o644})
		}
	}
	for _, name := range append(readmes, clientReadmes...) {
		entries = append(entries, entry{name, filepath.Join(r.texts(), filepath.FromSlash(name)), 0o644})
	}
	for dir, from := range map[string]string{"man/man1": r.man(), "completions": r.completions()} {
		files, err := os.ReadDir(from)
		if err != nil {
			return err
		}
		for _, f := range files {
			entries = append(entries, entry{path.Join(dir, f.Name()), filepath.Join(from, f.Name()), 0o644})
		}
	}
	base := r.base(t)
	for i := range entries {
		entries[i].name = path.Join(base, entries[i].name)
	}
	write, ending := writeTarGz, ".tar.gz"
	if t.os == "windows" {
		write, ending = writeZip, ".zip"
	}
	f, err := os.Create(filepath.Join(r.files(), base+ending))
	if err != nil {
		return err
	}
	defer f.Close()
	if err := write(f, entries, r.time); err != nil {
		return err
	}
	return f.Close()
}

func byName(a, b entry) int { return cmp.Compare(a.name, b.name) }

// writeTarGz writes entries in the order of their names. Nothing else, such as who
// owns a file, is in the archive.
func writeTarGz(w io.Writer, entries []entry, modified time.Time) error {
	zw, err := gzip.NewWriterLevel(w, gzip.BestCompression)
	if err != nil {
		return err
	}
	tw := tar.NewWriter(zw)
	for _, e := range slices.SortedFunc(slices.Values(entries), byName) {
		content, err := os.ReadFile(e.from)
		if err != nil {
			return err
		}
		header := &tar.Header{Name: e.name, Mode: int64(e.mode), Size: int64(len(content)), ModTime: modified}
		if err := tw.WriteHeader(header); err != nil {
			return err
		}
		if _, err := tw.Write(content); err != nil {
			return err
		}
	}
	if err := tw.Close(); err != nil {
		return err
	}
	return zw.Close()
}

// writeZip is writeTarGz for a zip archive.
func writeZip(w io.Writer, entries []entry, modified time.Time) error {
	zw := zip.NewWriter(w)
	for _, e := range slices.SortedFunc(slices.Values(entries), byName) {
		content, err := os.ReadFile(e.from)
		if err != nil {
			return err
		}
		header := &zip.FileHeader{Name: e.name, Method: zip.Deflate, Modified: modified}
		header.SetMode(e.mode)
		file, err := zw.CreateHeader(header)
		if err != nil {
			return err
		}
		if _, err := file.Write(content); err != nil {
			return err
		}
	}
	return zw.Close()
}
