// Package testclient makes Clients for tests.
package testclient

import (
	"testing"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
)

// New returns a Client on b, or ends the test.
func New(t testing.TB, b driver.Backend, o *fencelock.Options) *fencelock.Client {
	t.Helper()
	c, err := fencelock.New(b, o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
