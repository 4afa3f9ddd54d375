package testserver

import (
	"os/exec"
	"syscall"
)

// dieWithParent makes the kernel kill the child when its parent is gone.
func dieWithParent(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
}
