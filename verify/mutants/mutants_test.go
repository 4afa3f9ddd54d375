package mutants

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

const root = "../.."

// TestEveryMutantApplies: a mutant whose text is gone from its file tests nothing.
func TestEveryMutantApplies(t *testing.T) {
	names := map[string]bool{}
	for _, m := range All() {
		if _, err := m.Apply(root); err != nil {
			t.Error(err)
		}
		if names[m.Name] {
			t.Errorf("there are two that say %q", m.Name)
		}
		names[m.Name] = true
		if len(m.By) == 0 {
			t.Errorf("%q: nobody is to notice it", m.Name)
		}
		for _, b := range m.By {
			if _, err := os.Stat(filepath.Join(root, b.Module, b.Package)); err != nil {
				t.Errorf("%q: %v", m.Name, err)
			}
		}
	}
}

// lines is what the table tells.
func lines(t *testing.T) map[string]string {
	t.Helper()
	b, err := os.ReadFile("mutants.md")
	if err != nil {
		t.Fatal(err)
	}
	return Lines(string(b))
}

// TestTableTellsOfMutantsThatAreThere: a line of one that was renamed tells of nothing.
func TestTableTellsOfMutantsThatAreThere(t *testing.T) {
	told := lines(t)
	for _, m := range All() {
		delete(told, m.Name)
	}
	for name := range told {
		t.Errorf("mutants.md tells of %q, which is not there", name)
	}
}

// TestAMutantIsNoticed tries two mutants that need no server and were noticed before,
// others every day. go run ./cmd/mutants tries all of them.
func TestAMutantIsNoticed(t *testing.T) {
	abs, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	told := lines(t)
	known := slices.DeleteFunc(slices.Concat(core(), memory()), func(m Mutant) bool { return told[m.Name] == "" })
	if len(known) == 0 {
		t.Fatal("the table tells of none")
	}
	day := int(time.Now().Unix() / 86400)
	for i := range 2 {
		m := known[(2*day+i)%len(known)]
		t.Run(m.Name, func(t *testing.T) {
			v, err := Try(t.Context(), abs, t.TempDir(), m, time.Minute)
			switch {
			case err != nil:
				t.Error(err)
			case !v.Caught:
				t.Errorf("nobody noticed it, in %s", m.File)
			default:
				t.Logf("%s in %s, after %v", v.Failed, v.Test, v.Took)
			}
		})
	}
}
