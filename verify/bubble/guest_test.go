//go:build wasip1

package bubble_test

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/fencelock/fencelock/drivertest/steps"
)

// TestGuest is what runs in the sandbox: one program, read from the standard input, and
// what came of it, written to the standard output.
func TestGuest(t *testing.T) {
	var p program
	steps.Must(t, json.NewDecoder(os.Stdin).Decode(&p))
	steps.Must(t, json.NewEncoder(os.Stdout).Encode(run(t, p)))
	os.Exit(0) // nothing else is to be written there
}
