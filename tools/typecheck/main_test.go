package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/drivertest/steps"
)

// An error of one platform is found there alone, in tests if they are asked for.
func TestErrorsOfOnePlatformAreFound(t *testing.T) {
	folder := module(t, map[string]string{
		"a.go":              "package a\n\nimport \"os/signal\"\n\nvar _ = signal.Notify\n",
		"a_windows.go":      "package a\n\nfunc f() int { return \"text\" }\n",
		"a_darwin_test.go":  "package a\n\nimport \"fmt\"\n",
		"a_tagged.go":       "//go:build tagged\n\npackage a\n\nvar x int = y\n",
		"inner/inner.go":    "package inner\n\nimport _ \"example.com/a\"\n",
		"inner/in_other.go": "//go:build !linux && !darwin\n\npackage inner\n\nvar _ = undefined\n",
	})
	for _, tt := range []struct {
		platform, tags string
		tests          bool
		want           []string
	}{
		{platform: "linux/arm64"},
		{platform: "windows/amd64", want: []string{"a_windows.go:3:23", "in_other.go:5:9"}},
		{platform: "darwin/arm64"},
		{platform: "darwin/arm64", tests: true, want: []string{"a_darwin_test.go:3:8"}},
		{platform: "linux/amd64", tags: "tagged", want: []string{"a_tagged.go:5:13"}},
	} {
		found, err := check(folder, tt.platform, tt.tags, tt.tests, []string{"./..."})
		if err != nil {
			t.Fatal(tt.platform, err)
		}
		for i, want := range tt.want {
			if len(found) != len(tt.want) || !strings.Contains(found[i], want) {
				t.Fatalf("%v: found %q, want %q", tt, found, tt.want)
			}
		}
		if len(tt.want) == 0 && len(found) > 0 {
			t.Errorf("%v: found %q", tt, found)
		}
	}
}

// A module that lacks a requirement is incomplete, and so is one that lacks a sum.
func TestIncompleteModuleIsFound(t *testing.T) {
	imports := map[string]string{"a.go": "package a\n\nimport _ \"golang.org/x/mod/semver\"\n"}
	found, err := check(module(t, imports), "linux/amd64", "", false, []string{"./..."})
	if err == nil && len(found) == 0 {
		t.Error("a package of no required module was not found missing")
	}
	imports["go.mod"] = "module example.com/a\n\ngo 1.26.0\n\nrequire golang.org/x/mod v0.43.0\n"
	found, err = check(module(t, imports), "linux/amd64", "", false, []string{"./..."})
	if err == nil && len(found) == 0 {
		t.Error("a sum that is not in go.sum was not found missing")
	}
}

// module makes a module with these files, which is in no workspace.
func module(t *testing.T, files map[string]string) string {
	t.Helper()
	t.Setenv("GOWORK", "off")
	folder := t.TempDir()
	all := map[string]string{"go.mod": "module example.com/a\n\ngo 1.26.0\n"}
	for name, text := range files {
		all[name] = text
	}
	for name, text := range all {
		name = filepath.Join(folder, name)
		steps.Must(t, os.MkdirAll(filepath.Dir(name), 0o755))
		steps.Must(t, os.WriteFile(name, []byte(text), 0o644))
	}
	return folder
}
