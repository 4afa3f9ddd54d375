package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencelock/fencelock/drivertest/steps"
)

var modified = time.Date(2026, 11, 25, 1, 2, 4, 0, time.UTC)

// entries are files to pack, with times that must not get into an archive.
func entries(t *testing.T) []entry {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"b", "a"} {
		steps.Must(t, os.WriteFile(filepath.Join(dir, name), []byte("content of "+name), 0o600))
	}
	return []entry{{"x/b", filepath.Join(dir, "b"), 0o644}, {"x/a", filepath.Join(dir, "a"), 0o755}}
}

func TestTarGzIsSortedAndSaysNothingOfItsMaker(t *testing.T) {
	var b bytes.Buffer
	steps.Must(t, writeTarGz(&b, entries(t), modified))
	zr, err := gzip.NewReader(&b)
	steps.Must(t, err)
	if !zr.ModTime.IsZero() || zr.Name != "" {
		t.Errorf("gzip header: %+v", zr.Header)
	}
	var names []string
	tr := tar.NewReader(zr)
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		steps.Must(t, err)
		names = append(names, h.Name)
		if !h.ModTime.Equal(modified) || h.Uid != 0 || h.Uname != "" {
			t.Errorf("%s: %+v", h.Name, h)
		}
		if executable := h.Mode&0o111 != 0; executable != (h.Name == "x/a") {
			t.Errorf("%s has mode %o", h.Name, h.Mode)
		}
	}
	if want := []string{"x/a", "x/b"}; !slices.Equal(names, want) {
		t.Errorf("%q, want %q", names, want)
	}
}

func TestZipIsSortedAndHasOneTime(t *testing.T) {
	var b bytes.Buffer
	steps.Must(t, writeZip(&b, entries(t), modified))
	zr, err := zip.NewReader(bytes.NewReader(b.Bytes()), int64(b.Len()))
	steps.Must(t, err)
	if len(zr.File) != 2 || zr.File[0].Name != "x/a" || zr.File[1].Name != "x/b" {
		t.Fatalf("%+v", zr.File)
	}
	for _, f := range zr.File {
		if !f.Modified.Equal(modified) {
			t.Errorf("%s: %v", f.Name, f.Modified)
		}
	}
}

func TestSumsReadAsSHA256SumPrintsThem(t *testing.T) {
	dir := t.TempDir()
	steps.Must(t, os.WriteFile(filepath.Join(dir, "f"), []byte("abc"), 0o644))
	steps.Must(t, writeSums(dir))
	got, err := os.ReadFile(filepath.Join(dir, sumsFile))
	steps.Must(t, err)
	if want := "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  f\n"; string(got) != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestNotesAreTheSectionOfTheVersion(t *testing.T) {
	const log = "# Changelog\n\nText.\n\n## Unreleased\n\n- new\n\n## v0.9.0 (2026-11-25)\n\n- old\n\n### More\n\nmore\n\n## v0.8.0\n\n- older\n"
	for version, want := range map[string]string{
		"v0.9.0": "# fencelock v0.9.0\n\n- old\n\n### More\n\nmore\n",
		"v0.8.0": "# fencelock v0.8.0\n\n- older\n",
		"v1.0.0": "# fencelock v1.0.0\n\n- new\n",
	} {
		if got, err := notesOf(log, version); err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", version, got, err, want)
		}
	}
	if notes, err := notesOf("# Changelog\n\n## Unreleased\n\n", "v0.9.0"); err == nil {
		t.Errorf("an empty section gave %q", notes)
	}
}

func TestVersionsThatAreNone(t *testing.T) {
	for _, version := range []string{"", "0.9.0", "v0.9", "v1.0.0+meta", "v2.0.0"} {
		_, err := newRelease(t.Context(), t.TempDir(), filepath.Join(t.TempDir(), "out"), version)
		if err == nil || !strings.HasPrefix(err.Error(), version) {
			t.Errorf("%s: %v", version, err)
		}
	}
}
