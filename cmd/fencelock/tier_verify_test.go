//go:build verify

package main

const verifying = true // the tests of make verify
