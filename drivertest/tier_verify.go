//go:build verify

package drivertest

const verifying = true // the tests of make verify
