//go:build wasip1

package bubble_test

import (
	"encoding/json"
	"os"
	"testing"
)

// TestGuest is what runs in the sandbox: one program, read from the standard input, and
// what came of it, written to the standard output.
func TestGuest(t *testing.T) {
	var p program
	if err := json.NewDecoder(os.Stdin).Decode(&p); err != nil {
		t.Fatal(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(run(t, p)); err != nil {
		t.Fatal(err)
	}
	os.Exit(0) // nothing else is to be written there
}
