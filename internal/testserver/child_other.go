//go:build !linux

package testserver

import "os/exec"

// dieWithParent has no equal here: a test that is killed leaves its servers running.
func dieWithParent(*exec.Cmd) {}
