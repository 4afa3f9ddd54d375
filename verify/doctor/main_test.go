package doctor_test

import (
	"os"
	"testing"

	"github.com/fencelock/fencelock/internal/testserver"
)

// Most of the time a test here waits for a server, or for a network that is slow on purpose.
func TestMain(m *testing.M) {
	testserver.Parallel("6")
	os.Exit(m.Run())
}
