//go:build !verify

package sql_test

import "time"

const (
	verifying = false           // the tests of a pull request
	spell     = 2 * time.Second // how long a random schedule goes on
)
