//go:build verify

package main

import (
	"regexp"
	"testing"

	"github.com/fencelock/fencelock/drivertest/steps"
)

// The terminals show what the command prints today, but for times and numbers.
func TestTerminalsShowWhatTheCommandPrints(t *testing.T) {
	lines, err := record(t.Context())
	steps.Must(t, err)
	for name, want := range terminals(lines) {
		if got := stored(t, name); masked(got) != masked(want) {
			t.Errorf("%s shows\n%s\nand the command prints\n%s\nrun go run ./cmd/pictures in verify", name, masked(got), masked(want))
		}
	}
}

// masked leaves the text of the terminals alone, without what differs from run to run: places,
// numbers, and who ran it.
func masked(svg string) string {
	var text string
	for _, m := range regexp.MustCompile(`monospace"[^>]*>([^<]*)<`).FindAllStringSubmatch(svg, -1) {
		text += m[1] + " "
	}
	text = regexp.MustCompile(`\S+@\S+/`).ReplaceAllString(text, "USER@HOST/")
	text = regexp.MustCompile(`[0-9]+`).ReplaceAllString(text, "N")
	return regexp.MustCompile(` +`).ReplaceAllString(text, " ")
}
