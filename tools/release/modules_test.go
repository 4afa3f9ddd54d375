package main

import (
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"

	"github.com/fencelock/fencelock/drivertest/steps"
)

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
