package main

import (
	"testing"
	"time"
)

// No two programs have the lock at once, in any phase.
func TestFleetMovesUnderLoad(t *testing.T) {
	if err := run(t.Context(), 500*time.Millisecond); err != nil {
		t.Fatal(err)
	}
}
