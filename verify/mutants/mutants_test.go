package mutants

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fencelock/fencelock/drivertest/steps"
)

const root = "../.."

// TestEveryMutantApplies: a mutant whose text is gone from its file tests nothing.
func TestEveryMutantApplies(t *testing.T) {
	names := map[string]bool{}
	for _, m := range All() {
		steps.OK(t, steps.ErrOf(m.Apply(root)))
		if names[m.Name] {
			t.Errorf("there are two that say %q", m.Name)
		}
		names[m.Name] = true
		if len(m.By) == 0 {
			t.Errorf("%q: nobody is to notice it", m.Name)
		}
		for _, b := range m.By {
			if _, err := os.Stat(filepath.Join(root, b.Dir)); err != nil {
				t.Errorf("%q: %v", m.Name, err)
			}
		}
	}
}

// read reads a file of the repository.
func read(t *testing.T, path ...string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(append([]string{root}, path...)...))
	steps.Must(t, err)
	return string(b)
}

// TestTableHasALineForEachMutant: one that nothing notices has none, and neither has one
// that nobody has run. A line of one that was renamed tells of nothing.
func TestTableHasALineForEachMutant(t *testing.T) {
	table := read(t, "verify", "mutants", "mutants.md")
	told := Lines(table)
	if Table(told) != table {
		t.Error("mutants.md is not what go run ./cmd/mutants writes")
	}
	for _, m := range All() {
		line, ok := Read(told[m.Name])
		delete(told, m.Name)
		switch {
		case !ok:
			t.Errorf("mutants.md has no line for %q: run it with go run ./cmd/mutants -missing", m.Name)
		case line.File != m.File:
			t.Errorf("mutants.md looks for %q in %s; it is in %s", m.Name, line.File, m.File)
		case !slices.ContainsFunc(m.By, func(b Test) bool { return b.Dir == line.Package }):
			t.Errorf("mutants.md says that %s noticed %q; it is not asked", line.Package, m.Name)
		case line.Failed == "panics": // outside of any test, which ends all of them
		default:
			if name, _, _ := strings.Cut(line.Failed, "/"); !declared(t, line.Package, name) {
				t.Errorf("mutants.md says that %s in %s noticed %q; there is no such test", name, line.Package, m.Name)
			}
		}
	}
	for name := range told {
		t.Errorf("mutants.md tells of %q, which is not there", name)
	}
}

// declared reports whether the package in a folder has a test, or an example, of that name.
func declared(t *testing.T, folder, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(folder), "*_test.go"))
	steps.Must(t, err)
	return slices.ContainsFunc(files, func(file string) bool {
		b, err := os.ReadFile(file)
		return err == nil && strings.Contains(string(b), "\nfunc "+name+"(")
	})
}

// TestMutantsAreTriedAsTestsAreRun: what notices a mutant here notices it there.
func TestMutantsAreTriedAsTestsAreRun(t *testing.T) {
	script := read(t, "scripts", "tests.bash")
	unraced := regexp.MustCompile(`(?m)^unraced=\((.*)\)$`).FindStringSubmatch(script)
	call := regexp.MustCompile(`go (test .*) -p \S+ -timeout \S+ `).FindStringSubmatch(script)
	if unraced == nil || call == nil {
		t.Fatal("scripts/tests.bash calls go test in another way than this test can read")
	}
	got := strings.NewReplacer(`"${unraced[@]}"`, unraced[1], `${tags[@]+"${tags[@]}"}`, "-tags=verify").Replace(call[1])
	steps.Same(t, "scripts/tests.bash calls go", got, strings.Join(ci, " "))
	if !strings.Contains(read(t, "scripts", "test.sh"), `$(go list -m -f '{{.Dir}}/...')`) {
		t.Fatal("scripts/test.sh does not test all modules of the workspace")
	}
	workspace := read(t, "go.work")
	for _, m := range All() {
		for _, b := range m.By {
			if module := moduleOf(t, b.Dir); module != "." && !strings.Contains(workspace, "\t./"+module+"\n") {
				t.Errorf("%q: scripts/test.sh does not run the tests of %s", m.Name, module)
			}
		}
	}
}

// moduleOf is the module of a folder.
func moduleOf(t *testing.T, dir string) string {
	t.Helper()
	for ; ; dir = path.Dir(dir) {
		if _, err := os.Stat(filepath.Join(root, dir, "go.mod")); err == nil {
			return dir
		}
		if dir == "." {
			t.Fatal("there is no module")
		}
	}
}

// TestATestThatDoesNotEndNoticesNothing, and neither does one that was not there, or that
// did not compile.
func TestATestThatDoesNotEndNoticesNothing(t *testing.T) {
	for _, c := range []struct {
		out, failed string
		bad         bool
	}{
		{out: "ok  \tp\t0.1s\n"},
		{out: "--- FAIL: TestA (0.1s)\n    --- FAIL: TestA/b (0.1s)\nFAIL\n", failed: "TestA/b"},
		{out: "panic: boom\nFAIL\tp\t0.1s\n", failed: "panics"},
		{out: "panic: TestA: has not ended\nFAIL\tp\t0.1s\n", failed: "TestA"},
		{out: "--- FAIL: TestA (0.1s)\npanic: test timed out after 2m0s\nFAIL\tp\t120s\n", bad: true},
		{out: "ok  \tp\t0.1s [no tests to run]\n", bad: true},
		{out: "FAIL\tp [build failed]\n", bad: true},
		{out: "signal: killed\n", bad: true},
	} {
		if failed, err := judge(c.out); failed != c.failed || (err != nil) != c.bad {
			t.Errorf("of\n%s\nit says %q, %v; want %q, bad %v", c.out, failed, err, c.failed, c.bad)
		}
	}
}
