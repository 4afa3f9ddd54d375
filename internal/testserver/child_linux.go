package testserver

import "syscall"

// dieWithParent makes the kernel kill the child when its parent is gone.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
