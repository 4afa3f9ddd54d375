//go:build unix

package main

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	if os.Getenv("STORY_MACHINE") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// What go run ./leader does.
func TestThreeReplicas(t *testing.T) {
	if err := threeReplicas(t.Context()); err != nil {
		t.Error(err)
	}
}
