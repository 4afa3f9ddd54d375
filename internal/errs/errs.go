// Package errs holds the errors that both the core and a backend's own calls return, such as
// sqllock.Tx. Package fencelock exports them and documents what each means to a caller.
package errs

import "errors"

// The errors, by their names in package fencelock.
var (
	NotAcquired = errors.New("not acquired")
	Unavailable = errors.New("the store is unavailable")
	Deadlock    = errors.New("the caller would wait for itself")
	Invalid     = errors.New("invalid")
)
