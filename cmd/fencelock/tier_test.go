//go:build !verify

package main

const verifying = false // the tests of a pull request
