package main

import (
	"os"
	"strconv"
)

// sayNotify tells who has put run into a unit of systemd with Type=notify what the unit needs. Without
// it systemd ignores the command's READY=1, and ends the unit after a time-out that names no cause.
func (f *holdFlags) sayNotify() {
	if os.Getenv("NOTIFY_SOCKET") == "" || os.Getenv("SYSTEMD_EXEC_PID") != strconv.Itoa(os.Getpid()) || f.quiet {
		return
	}
	say("this unit has Type=notify: systemd takes READY=1 from the command only with NotifyAccess=all, and " +
		"TimeoutStartSec counts the time in line as well; set both, or Type=exec")
}
