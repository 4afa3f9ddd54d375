//go:build unix

package main

import (
	"os"
	"os/signal"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/fencelock/fencelock/cmd/fencelock/internal/agent"
)

// becomeAgent makes this process the agent that hold started, if it is one.
func becomeAgent() { agentSelf = agent.Main() }

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	return err == nil
}

// outlivePipes makes a write to a pipe that nobody reads an error instead of the
// end of this process, for as long as a command depends on it. The command is not
// affected.
func outlivePipes() { signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE) }

// systemVerbs are those that not every system can do.
func systemVerbs(c *cli) []*cobra.Command { return []*cobra.Command{newHold(c)} }

// platformHelp says what this system does not do.
const platformHelp = ""

// become replaces this process by another program. It returns only an error.
func become(path string, args []string) error {
	return cannotStart(path, unix.Exec(path, args, os.Environ()))
}
