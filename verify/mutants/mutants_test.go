package mutants

import (
	"os"
	"path/filepath"
	"testing"
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
