//go:build unix

package child

import (
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// terminal is the controlling terminal of this process. Its foreground group is
// the one that may read from it and that gets its signals: for a job of a shell, the
// group of this process. The command has a group of its own, so the foreground is
// handed to it and taken back. A nil terminal does nothing.
type terminal struct {
	tty    *os.File
	own    int  // the group of this process
	handed bool // the command is to be in front whenever this process is
	asked  bool // a person asked the whole job to stop, and it has not stopped yet
	back   bool // it was taken back before the command was over
}

func openTerminal() *terminal {
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil
	}
	// Whoever is not in the foreground may not change it, unless it ignores this. The
	// command was started before, so it does not inherit the ignoring.
	signal.Ignore(unix.SIGTTOU)
	return &terminal{tty: tty, own: unix.Getpgrp()}
}

func (t *terminal) foreground() int {
	n, err := unix.IoctlGetInt(int(t.tty.Fd()), unix.TIOCGPGRP)
	if err != nil {
		return 0
	}
	return n
}

func (t *terminal) give(group int) {
	_ = unix.IoctlSetPointerInt(int(t.tty.Fd()), unix.TIOCSPGRP, group)
}

// offer hands the terminal to group at once if a person talks to this command
// alone: stdin and stdout are the terminal, and this process is in front. In
// `… | fencelock run` and `fencelock run … | less` another program of the same job
// may need the terminal, so there it is handed over when the command asks for it
// (see Stop).
func (t *terminal) offer(group int) {
	if t == nil || t.foreground() != t.own {
		return
	}
	for fd := 0; fd <= 1; fd++ {
		if n, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP); err != nil || n != t.own {
			return
		}
	}
	t.handed = true
	t.give(group)
}

// restore takes the terminal back from group, whose command was ended by the signal
// by, if not 0. What a person typed at the terminal went to that group alone. Without
// fencelock the scripts around it would have got it too, and ended: so they get it now.
func (t *terminal) restore(group int, by syscall.Signal) {
	if t == nil {
		return
	}
	front := t.foreground() == group
	if front {
		t.give(t.own)
	}
	if (front || t.back) && (by == unix.SIGINT || by == unix.SIGQUIT) {
		_ = unix.Kill(0, by)
	}
	t.tty.Close()
}

// Regain takes the terminal back from a group that is gone while others are waited for: else no
// process would hear of Ctrl-C.
func (k *Child) Regain() {
	if t := k.terminal; t != nil && k.noGroup.Load() && t.foreground() == k.group {
		t.give(t.own)
		t.back = true
	}
}

// Stop is called when the command was stopped by sig, and does what a shell
// expects of a job. If the command was stopped because it wants the terminal, and
// this process may give it, the command goes on with it. If a person stopped the job,
// this process and all others of its group stop too, and Stop returns when the job is
// continued. Then look whether there is still a reason to run, and call Continue.
//
// A command that somebody stopped by hand, away from its terminal, stays stopped,
// and Stop reports false. One that stops itself when a person asks it to is not that.
func (k *Child) Stop(sig os.Signal) (resume bool) {
	t := k.terminal
	if t == nil || k.noGroup.Load() {
		return false
	}
	front := t.foreground()
	if sig == unix.SIGTTIN || sig == unix.SIGTTOU {
		t.handed = true
	}
	switch {
	case t.asked: // whatever stopped the command, the job stops with it
	case t.handed && front == t.own:
		return true
	case sig == unix.SIGSTOP && front != k.group:
		return false
	}
	mine := unix.SIGTSTP
	if sig == unix.SIGTTIN && !t.asked {
		mine = unix.SIGTTIN
	}
	resumed := make(chan os.Signal, 1)
	signal.Notify(resumed, unix.SIGCONT)
	defer signal.Stop(resumed)
	if front == k.group {
		t.give(t.own)
	}
	t.asked = false
	stopGroup(mine)
	// This process is stopped about now. If nobody could continue it (it has no shell,
	// or is process 1), the kernel does not stop it, and the command has to go on.
	select {
	case <-resumed:
	case <-time.After(200 * time.Millisecond):
	}
	return true
}

// Continue lets the group run on, in front if this process is.
func (k *Child) Continue() {
	if t := k.terminal; t != nil && !k.noGroup.Load() {
		t.asked = false
		if t.handed && t.foreground() == t.own {
			t.give(k.group)
		}
	}
	k.Signal(unix.SIGCONT)
}

// DieInterrupted ends this process by SIGINT if it runs in front on a terminal. A
// shell whose command exits with 130 takes it that the command dealt with Ctrl-C, and
// goes on with its script; only when the command died of it does the script end.
// Elsewhere it returns, and an exit code has to do.
func DieInterrupted() {
	t := openTerminal()
	if t == nil || t.foreground() != t.own || os.Getpid() == 1 {
		return
	}
	signal.Reset(unix.SIGINT)
	_ = unix.Kill(unix.Getpid(), unix.SIGINT)
	time.Sleep(time.Second)
}
