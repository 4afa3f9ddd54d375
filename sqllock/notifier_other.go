//go:build !linux

package sqllock

// watchFile returns nil: this system has no notifier without a dependency. Waiters poll.
func watchFile(string) notifier { return nil }

func notifyFile(string) {}
