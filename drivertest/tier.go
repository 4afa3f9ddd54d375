//go:build !verify

package drivertest

const verifying = false // the tests of a pull request
