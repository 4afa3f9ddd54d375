package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"go/parser"
	"go/token"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/modfile"

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

func parse(t *testing.T, text string) *modfile.File {
	t.Helper()
	f, err := modfile.Parse("go.mod", []byte(text), nil)
	steps.Must(t, err)
	return f
}

const storeMod = `module github.com/fencelock/fencelock/storeurl

go 1.26.0

require (
	github.com/fencelock/fencelock v0.0.0
	github.com/redis/go-redis/v9 v9.23.0
)

require github.com/fencelock/fencelock/redislock v0.0.0-00010101000000-000000000000 // indirect

replace (
	github.com/fencelock/fencelock => ..
	github.com/fencelock/fencelock/redislock => ../redislock
)
`

func TestVersionsTakeThePlaceOfReplaceLines(t *testing.T) {
	for _, keep := range []bool{false, true} {
		f := parse(t, storeMod)
		steps.Must(t, setVersions(f, "v0.9.0", keep))
		b, err := f.Format()
		steps.Must(t, err)
		text := string(b)
		for _, want := range []string{
			"\tgithub.com/fencelock/fencelock v0.9.0\n", "fencelock/redislock v0.9.0 // indirect\n", "go-redis/v9 v9.23.0\n",
		} {
			if !strings.Contains(text, want) {
				t.Errorf("no %q in\n%s", want, text)
			}
		}
		if strings.Contains(text, "replace") != keep {
			t.Errorf("replace lines, which are to be kept: %v\n%s", keep, text)
		}
	}
}

// A replace line of another project would be lost on users without a word.
func TestReplaceOfAnotherProjectIsRefused(t *testing.T) {
	f := parse(t, "module m\n\nreplace example.com/other => ../other\n")
	if err := setVersions(f, "v0.9.0", false); err == nil {
		t.Error("it was accepted")
	}
	steps.OK(t, setVersions(f, "v0.9.0", true))
}

func TestModulesComeAfterThoseTheyNeed(t *testing.T) {
	module := func(name string, needs ...string) goModule {
		text := "module " + rootPath + name + "\n"
		for _, n := range needs {
			text += "require " + rootPath + n + " v0.0.0\n"
		}
		return goModule{path: rootPath + name, file: parse(t, text)}
	}
	sorted, err := dependenciesFirst([]goModule{
		module("/cmd", "/store", ""), module("/store", "/redis", ""), module(""), module("/redis", ""),
	})
	steps.Must(t, err)
	var names []string
	for _, m := range sorted {
		names = append(names, strings.TrimPrefix(m.path, rootPath))
	}
	if want := []string{"", "/redis", "/store", "/cmd"}; !slices.Equal(names, want) {
		t.Errorf("%q, want %q", names, want)
	}
	for _, modules := range [][]goModule{
		{module("/a", "/b"), module("/b", "/a")},
		{module("/a", "/unreleased")},
	} {
		if _, err := dependenciesFirst(modules); err == nil {
			t.Errorf("%v was ordered", modules)
		}
	}
}

func TestSumsAreAddedInOrder(t *testing.T) {
	old := "example.com/z v1.0.0 h1:z=\nexample.com/z v1.0.0/go.mod h1:zmod=\n"
	got := addSums(old, "v0.9.0", map[string]sums{rootPath: {"h1:a=", "h1:amod="}})
	want := old + rootPath + " v0.9.0 h1:a=\n" + rootPath + " v0.9.0/go.mod h1:amod=\n"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if again := addSums(got, "v0.9.0", map[string]sums{rootPath: {"h1:a=", "h1:amod="}}); again != got {
		t.Errorf("added twice:\n%s", again)
	}
}

func TestTextsOfAReleaseLeadToTheRepository(t *testing.T) {
	const text = "a<!-- unreleased -->not yet: [x](y)<!-- end --> [b](docs/b.md#c), [d](https://e), [f](#g), ![p](docs/p.png), " +
		`<source srcset="docs/d.svg"><img src="docs/l.svg">`
	const want = "a[b](https://github.com/fencelock/fencelock/blob/v1.2.3/docs/b.md#c), [d](https://e), [f](#g), " +
		"![p](https://github.com/fencelock/fencelock/raw/v1.2.3/docs/p.png), " +
		`<source srcset="https://github.com/fencelock/fencelock/raw/v1.2.3/docs/d.svg">` +
		`<img src="https://github.com/fencelock/fencelock/raw/v1.2.3/docs/l.svg">`
	if got := absoluteLinks("README.md", released(text), "v1.2.3"); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// The READMEs say in the tree that nothing is released yet, and in a release that it is.
func TestTheREADMEsAreReleased(t *testing.T) {
	for _, name := range readmes {
		text, err := os.ReadFile(filepath.Join("..", "..", name))
		steps.Must(t, err)
		after := released(string(text))
		for _, word := range []string{"Unreleased", "尚未发布", "<!--"} {
			if strings.Contains(after, word) {
				t.Errorf("%s of a release says %q", name, word)
			}
		}
	}
}

// The rehearsal of a release runs the program of the README in English.
func TestProgramOfTheREADMEParses(t *testing.T) {
	text, err := os.ReadFile("../../README.zh-CN.md")
	steps.Must(t, err)
	program, err := readmeProgram(string(text), "127.0.0.1:1")
	steps.Must(t, err)
	_, err = parser.ParseFile(token.NewFileSet(), "main.go", program, parser.AllErrors)
	steps.Well(t, program, err)
	if program, err := readmeProgram("```go\nimport (\n```\n", "127.0.0.1:1"); err == nil {
		t.Errorf("made %s", program)
	}
}

// The image that users run has neither a shell nor root. Docker itself builds it in CI.
func TestImageHasNoShellAndNoRoot(t *testing.T) {
	text, err := os.ReadFile("../../Dockerfile")
	steps.Must(t, err)
	last := string(text[bytes.LastIndex(text, []byte("\nFROM ")):])
	for _, want := range []string{`\nFROM scratch\n`, `\nUSER [1-9]\d*:[1-9]\d*\n`, `\nENTRYPOINT \[`} {
		if !regexp.MustCompile(want).MatchString(last) {
			t.Errorf("the last stage does not match %q:%s", want, last)
		}
	}
	if refused := regexp.MustCompile(`\n(RUN .*|(CMD|ENTRYPOINT|USER) [^\[1-9].*)`).FindString(last); refused != "" {
		t.Errorf("the last stage needs a shell or root: %s", refused)
	}
}
