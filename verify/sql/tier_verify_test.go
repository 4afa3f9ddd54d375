//go:build verify

package sql_test

import "time"

const (
	verifying = true // the tests of make verify
	spell     = 6 * time.Second
)
