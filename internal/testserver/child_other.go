//go:build !linux

package testserver

import "syscall"

// dieWithParent has no equal here: a test that is killed leaves its servers
// running.
func dieWithParent() *syscall.SysProcAttr { return nil }
