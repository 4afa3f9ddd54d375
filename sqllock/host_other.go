//go:build !linux

package sqllock

import (
	"context"
	"errors"
)

// sinceBoot says that this system has no clock that is common to all processes,
// goes on while the machine sleeps, cannot be set, and can be read without more
// dependencies. Leases are counted on the wall clock.
func sinceBoot() (int64, bool) { return 0, false }

func bootID() int64 { return 0 }

// fileSystem returns "": what is known on Linux is not asked here.
func fileSystem(string) string { return "" }

// listenFile hears nothing: this system has no notifier without a dependency. Waiters poll.
func listenFile(context.Context, string, func()) error { return errors.ErrUnsupported }

func notifyFile(string) {}
