//go:build unix

package child

import (
	"os"

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
