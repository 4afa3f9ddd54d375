//go:build !unix

package torture

import (
	"errors"
	"os"
)

var errNoSignals = errors.New("this system cannot stop a process: run the torture on Linux or macOS")

func stopProcess(*os.Process) error   { return errNoSignals }
func resumeProcess(*os.Process) error { return errNoSignals }
func signalAll([]int, bool) error     { return errNoSignals }
