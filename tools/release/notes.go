package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// makeNotes writes what CHANGELOG.md says of the version.
func (r *release) makeNotes(context.Context) error {
	text, err := os.ReadFile(filepath.Join(r.clone(), "CHANGELOG.md"))
	if err != nil {
		return err
	}
	notes, err := notesOf(string(text), r.version)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.files(), "release-notes.md"), []byte(notes), 0o644)
}

// notesOf returns the section of a version: "## v0.9.0", with or without a date after it.
// A version without a section of its own is what is called Unreleased so far.
func notesOf(changelog, version string) (string, error) {
	for _, want := range []string{version, "Unreleased"} {
		var section strings.Builder
		inside := false
		for line := range strings.Lines(changelog) {
			if title, ok := strings.CutPrefix(line, "## "); ok {
				words := strings.Fields(title)
				inside = len(words) > 0 && words[0] == want
				continue
			}
			if inside {
				section.WriteString(line)
			}
		}
		if notes := strings.TrimSpace(section.String()); notes != "" {
			return "# fencelock " + version + "\n\n" + notes + "\n", nil
		}
	}
	return "", fmt.Errorf("CHANGELOG.md has no section ## %s and none ## Unreleased", version)
}
