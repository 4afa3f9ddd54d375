//go:build !linux

package sqllock

import (
	"context"
	"errors"
)

// listenFile hears nothing: this system has no notifier without a dependency. Waiters poll.
func listenFile(context.Context, string, func()) error { return errors.ErrUnsupported }

func notifyFile(string) {}
