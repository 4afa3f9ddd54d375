package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/fencelock/fencelock/drivertest/steps"
)

func init() {
	verify = filepath.Join("..", "..")
	docs = filepath.Join(verify, "..", "docs")
}

func TestPicturesAreThoseThatTheProgramDraws(t *testing.T) {
	files, err := drawings()
	steps.Must(t, err)
	for name, want := range files {
		if got := stored(t, name); got != want {
			t.Errorf("%s is not what the program draws: run go run ./cmd/pictures in verify", name)
		}
	}
}

func stored(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(docs, "images", name))
	steps.Must(t, err)
	return string(text)
}
