package main

import (
	"os"
	"path/filepath"
	"testing"
)

func init() {
	verify = filepath.Join("..", "..")
	docs = filepath.Join(verify, "..", "docs")
}

func TestPicturesAreThoseThatTheProgramDraws(t *testing.T) {
	files, err := drawings()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		if got := stored(t, name); got != want {
			t.Errorf("%s is not what the program draws: run go run ./cmd/pictures in verify", name)
		}
	}
}

func stored(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(docs, "images", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
