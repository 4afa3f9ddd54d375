//go:build unix

package torture

import (
	"errors"
	"os"
	"syscall"
)

func stopProcess(p *os.Process) error   { return p.Signal(syscall.SIGSTOP) }
func resumeProcess(p *os.Process) error { return p.Signal(syscall.SIGCONT) }

// signalAll stops processes, or lets them go on. One that has just ended is fine.
func signalAll(pids []int, stop bool) error {
	s := syscall.SIGCONT
	if stop {
		s = syscall.SIGSTOP
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, s); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
	return nil
}
