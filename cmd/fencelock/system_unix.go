//go:build unix

package main

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// onlyOwn reports whether nobody but this user and root can have written a file.
func onlyOwn(info os.FileInfo) bool {
	s, ok := info.Sys().(*syscall.Stat_t)
	return ok && (int(s.Uid) == os.Getuid() || s.Uid == 0) && info.Mode().Perm()&0o022 == 0
}

// outlivePipes makes a write to a pipe that nobody reads an error instead of the
// end of this process, for as long as a command depends on it. The command is not
// affected.
func outlivePipes() { signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE) }

// platformHelp says what this system does not do.
const platformHelp = ""

// become replaces this process by another program. It returns only an error.
func become(path string, args []string) error {
	return cannotStart(path, unix.Exec(path, args, os.Environ()))
}
