package main

import (
	"errors"
	"os"
	"os/exec"
)

// onlyOwn says nothing on Windows, where a folder's access list guards its files.
func onlyOwn(os.FileInfo) bool { return true }

func outlivePipes() {}

// platformHelp says what this system does not do.
const platformHelp = `

On Windows the command lives in a job object that ends with fencelock. Instead of
TERM and other signals it gets CTRL_BREAK; KILL ends the job. A suspended fencelock
is not noticed by anybody, so the command may outlive its lock then.`

// become runs another program in place of this process, and ends with its exit code.
func become(path string, args []string) error {
	cmd := exec.Command(path, args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		return silently(exit.ExitCode())
	case err != nil:
		return cannotStart(path, err)
	}
	return nil
}
