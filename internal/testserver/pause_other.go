//go:build !unix

package testserver

import (
	"errors"
	"os"
)

var errPause = errors.New("a process cannot be stopped and continued on this system")

func pause(*os.Process) error  { return errPause }
func resume(*os.Process) error { return errPause }
