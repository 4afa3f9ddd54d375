// Package child runs one command so that it does not outlive a deadline, nor the
// process that started it.
//
// On Unix the command leads a process group of its own, and signals go to the
// whole group. Its parent is a watchdog: this program once more, in a group of its own,
// which knows the deadline. The watchdog kills the command when the deadline passes and
// nobody moved it, and when the process that started it is gone. So a holder that is
// stopped, or killed with -9, leaves no command running. The command's first instruction
// runs only after the watchdog has said that it watches.
//
// On Linux both the watchdog and the process that started it are subreapers: a descendant
// of the command whose parent ends comes to them, in whatever session it is. So su, script
// and setsid do not hide a process from a kill, and nothing is over before no child is
// left. Other systems have no subreapers: there a kill reaches the group only.
//
// If the watchdog itself is killed, this process takes the command over, and another
// watchdog watches. That one is not a parent, so it reaches the group only.
//
// On Windows the command lives in a job object that ends with this process. There
// is no watchdog, so a suspended parent goes unnoticed there.
//
// Out of reach is what runs as another user, unless this one may signal that user.
package child

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// Command is what to run. There is no shell in between.
type Command struct {
	Path string   // the file to execute
	Args []string // argv, the name included
	Env  []string

	// Stdout is the output of the command; nil is that of this process.
	Stdout *os.File

	// Extra is another file that the command gets, as descriptor ExtraFD, on Unix only.
	Extra   *os.File
	ExtraFD int

	// Left says how much longer the group may live from the moment it is called.
	// Nil sets no bound.
	Left func() time.Duration

	// Signals is where the caller hears of the signals that Forwarded lists. While
	// the command runs, SIGTSTP comes there too.
	Signals chan<- os.Signal
}

// MinExtra and MaxExtra bound Command.ExtraFD.
const (
	MinExtra = 3
	MaxExtra = 9
)

// Status is how the command ended.
type Status struct {
	Code   int    // exit code, if it ended by itself
	Signal int    // the signal that ended it, or 0
	Name   string // of that signal: SIGKILL
}

// ExitCode is the code that a shell would report: 128+N for signal N.
func (s Status) ExitCode() int {
	if s.Signal != 0 {
		return 128 + s.Signal
	}
	return s.Code
}

// ExecError says that the command could not be started.
type ExecError struct {
	Path string
	Err  error
}

func (e *ExecError) Error() string { return fmt.Sprintf("%s: %v", e.Path, e.Err) }
func (e *ExecError) Unwrap() error { return e.Err }

// NotFound tells a command that is not there from one that cannot be executed.
func (e *ExecError) NotFound() bool { return errors.Is(e.Err, fs.ErrNotExist) }
