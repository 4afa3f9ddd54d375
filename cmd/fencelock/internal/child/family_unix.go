//go:build unix

package child

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// descendants are all processes that the command has started, directly or not. They are below the
// watchdog, and come to this process if the watchdog is killed. Then what this process has from
// before is not among them: "sidecar & exec fencelock run …" makes a sidecar its child.
func (k *Child) descendants() []int {
	strangers := k.strangers
	if w := k.watchdog; w != nil {
		if !k.orphaned && !w.gone() {
			return descendants(w.pid)
		}
		strangers = append(strangers[:len(strangers):len(strangers)], w.pid)
	}
	return descendants(os.Getpid(), strangers...)
}

// gone reports whether the watchdog has ended.
func (w *watchdog) gone() bool {
	select {
	case <-w.ended:
		return true
	default:
		return false
	}
}

// Untouchable lists the descendants that this process may not signal, because they run as
// another user.
func (k *Child) Untouchable() []string {
	var found []string
	for _, pid := range k.descendants() {
		if unix.Kill(pid, 0) == unix.EPERM && !zombie(pid) {
			found = append(found, describe(pid))
		}
	}
	return found
}

// others are the descendants that left the group: background jobs, which have a group of their own
// in this session, as a shell with job control starts them; and daemons, which left the session.
func (k *Child) others() (jobs, daemons []int) {
	here, _ := unix.Getsid(0)
	for _, pid := range k.descendants() {
		group, err := unix.Getpgid(pid)
		session, err2 := unix.Getsid(pid)
		switch {
		case err != nil || err2 != nil || group == k.group || zombie(pid):
		case session == here:
			jobs = append(jobs, pid)
		default:
			daemons = append(daemons, pid)
		}
	}
	return jobs, daemons
}

// Left describes the background jobs and the daemons of the command.
func (k *Child) Left() (jobs, daemons []string) {
	j, d := k.others()
	for _, pid := range j {
		jobs = append(jobs, describe(pid))
	}
	for _, pid := range d {
		daemons = append(daemons, describe(pid))
	}
	return jobs, daemons
}

// SignalOthers sends s to the background jobs of the command, and to its daemons if all is set.
// Only a group stops at a terminal, so a request to stop is for nobody here.
func (k *Child) SignalOthers(s os.Signal, all bool) {
	n, ok := s.(syscall.Signal)
	if !ok || n == unix.SIGTSTP {
		return
	}
	jobs, daemons := k.others()
	if all {
		jobs = append(jobs, daemons...)
	}
	for _, pid := range jobs {
		_ = unix.Kill(pid, n)
		if n == unix.SIGTERM { // what is stopped would not hear of it
			_ = unix.Kill(pid, unix.SIGCONT)
		}
	}
}
