package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	if os.Getenv("STORY_MACHINE") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// What go run ./nightly does. The lines of one machine are in order, those of two need not be. Two jobs of two seconds
// take four in turns.
func TestTwoMachines(t *testing.T) {
	var said strings.Builder
	began := time.Now()
	if err := twoMachines(t.Context(), &said); err != nil {
		t.Error(err)
	}
	if d := time.Since(began); d < 4*time.Second {
		t.Errorf("two jobs of two seconds took %v: the machines did not take turns", d)
	}
	lines := map[string]string{}
	for line := range strings.Lines(said.String()) {
		machine, text, _ := strings.Cut(line, ": ")
		lines[machine] += text
	}
	each := regexp.MustCompile(`^working under token \d+\ndone\n$`)
	if len(lines) != 2 || !each.MatchString(lines["machine a"]) || !each.MatchString(lines["machine b"]) {
		t.Errorf("the machines said %q", said.String())
	}
}
