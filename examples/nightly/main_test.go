package main

import (
	"os"
	"strings"
	"testing"
)

func TestMain(m *testing.M) {
	if os.Getenv("STORY_MACHINE") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// What go run ./nightly does.
func TestTwoMachines(t *testing.T) {
	var said strings.Builder
	if err := twoMachines(t.Context(), &said); err != nil {
		t.Error(err)
	}
	lines := strings.Split(strings.TrimSpace(said.String()), "\n")
	if len(lines) != 4 {
		t.Fatalf("the machines said %q", lines)
	}
	for i, line := range lines {
		machine, text, _ := strings.Cut(line, ": ")
		want := "working under token"
		if i%2 == 1 {
			want = "done"
		}
		if other, _, _ := strings.Cut(lines[i^1], ": "); machine != other || !strings.HasPrefix(text, want) {
			t.Errorf("the machines did not take turns: %q", lines)
		}
	}
}
