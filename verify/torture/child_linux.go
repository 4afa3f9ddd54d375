package torture

import "syscall"

// dieWithParent makes the kernel kill the worker when its parent is gone: one that is
// stopped would stay for ever.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
